package probe

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nftproxy/nftproxy/internal/model"
)

// TestMark: 12.86. A dry run marks what the engine marks before its next check, whatever was
// edited, and leaves its input alone.
func TestMark(t *testing.T) {
	often, long := *tcp, *tcp
	often.Interval /= 2
	long.Fall = 9
	for _, c := range []struct {
		name  string
		after []model.ServiceState
		want  string // endpoints that fail
	}{
		{"the same", []model.ServiceState{serviceOf("web", tcp, "10.0.0.1", "10.0.0.2", "fd00::1")}, "10.0.0.2:8080 of default/web, [fd00::1]:8080 of default/web"},
		{"another check", []model.ServiceState{serviceOf("web", &often, "10.0.0.1", "10.0.0.2")}, "10.0.0.2:8080 of default/web"},
		{"no check", []model.ServiceState{serviceOf("web", nil, "10.0.0.1", "10.0.0.2")}, ""},
		{"another endpoint", []model.ServiceState{serviceOf("web", tcp, "10.0.0.1", "10.0.0.3")}, ""},
		{"another Service with the check", []model.ServiceState{serviceOf("new", tcp, "10.0.0.2", "10.0.0.1")}, "10.0.0.2:8080 of default/new"},
		{"another Service with another check", []model.ServiceState{serviceOf("new", &long, "10.0.0.2", "10.0.0.1")}, ""},
		{"both", []model.ServiceState{serviceOf("new", tcp, "10.0.0.2"), serviceOf("web", tcp, "10.0.0.2")}, "10.0.0.2:8080 of default/new, 10.0.0.2:8080 of default/web"},
		{"none", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				l.answer("10.0.0.2", refused)
				l.answer("fd00::1", refused)
				l.start()
				before := serviceOf("web", tcp, "10.0.0.1", "10.0.0.2", "fd00::1")
				if got := l.failing(before); got != "" || l.Await(t.Context()) != nil {
					t.Fatalf("these fail: %s", got)
				}
				synctest.Wait()
				known := l.Failing()
				s := new(model.Snapshot)
				for _, state := range c.after {
					s.Services, s.Slices = append(s.Services, state.Service), append(s.Slices, state.Slices...)
				}
				edited, marked := Mark(s, known)
				if got := strings.Join(marked, ", "); got != c.want {
					t.Errorf("marked %s, want %s", got, c.want)
				}
				states := edited.Update().Services
				for _, state := range c.after {
					want := l.failing(state) // no check can end in between
					var got []string
					for _, slice := range states[state.Service.Name].Slices {
						for _, h := range slice.Hosts {
							if h.Failing {
								got = append(got, h.Address.String())
							}
						}
					}
					if strings.Join(got, " ") != want {
						t.Errorf("%s: failing %v, the engine says %s", state.Service.Name, got, want)
					}
				}
			})
		})
	}
}
