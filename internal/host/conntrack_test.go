package host

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// 9.15: the number of connections.
func TestMaxEntries(t *testing.T) {
	for _, c := range []struct {
		perCore, min, cpus, want int
	}{
		{32768, 131072, 1, 131072},
		{32768, 131072, 4, 131072},
		{32768, 131072, 8, 262144},
		{32768, 131072, 32, 1048576},
		{32768, 131072, 512, 1048576},
		{1, 123456, 2, 123456},
		{32768, 2000000, 40, 1048576}, // the cap beats the minimum,
		{32768, 2000000, 32, 2000000}, // unless it does not bite
		{1048577, 0, 1, 1048576},
		{1000, 0, 3, 3000},
	} {
		got := Conntrack{MaxPerCore: c.perCore, Min: c.min}.maxEntries(c.cpus)
		if got != c.want {
			t.Errorf("%d a core, at least %d, %d CPUs: %d, want %d", c.perCore, c.min, c.cpus, got, c.want)
		}
	}
}

// 9.15: CPUs are those that the kernel says are online.
func TestCPUs(t *testing.T) {
	for list, want := range map[string]int{
		"0": 1, "0-1": 2, "0-3,8,10-11": 7, "0-511": 512,
		"": 0, "x": 0, "0-": 0, "3-1": 0, "0,,1": 0,
	} {
		if got := countCPUs(list); got != want {
			t.Errorf("CPUs in %q: %d, want %d", list, got, want)
		}
	}
	if got := tree(t, map[string]string{"sys/devices/system/cpu/online": "0-6"}).onlineCPUs(); got != 7 {
		t.Errorf("%d CPUs, want 7", got)
	}
	if got := tree(t, nil).onlineCPUs(); got < 1 {
		t.Errorf("%d CPUs where sysfs says nothing", got)
	}
}

// files are the settings of a kernel that has just started, on 8 CPUs.
func files() map[string]string {
	return map[string]string{
		"sys/devices/system/cpu/online": "0-7",
		hashsize:                        "65536",
		sysctls + "nf_conntrack_max":    "65536",
		sysctls + "nf_conntrack_tcp_timeout_established": "432000",
		sysctls + "nf_conntrack_tcp_timeout_close_wait":  "60",
		sysctls + "nf_conntrack_tcp_be_liberal":          "0",
		sysctls + "nf_conntrack_udp_timeout":             "30",
		sysctls + "nf_conntrack_udp_timeout_stream":      "120",
	}
}

var everything = Conntrack{
	MaxPerCore: 65536, Min: 131072,
	TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour, TCPBeLiberal: true,
	UDPTimeout: 61 * time.Second, UDPStreamTimeout: 90*time.Second + 999*time.Millisecond,
}

func TestSetConntrack(t *testing.T) {
	for _, c := range []struct {
		name   string
		before map[string]string // unlike files
		set    Conntrack
		want   []string // file=value, in the order of writing
	}{
		{
			name: "9.13 everything, in order, durations in whole seconds",
			set:  everything,
			want: []string{
				"nf_conntrack_max=524288", "hashsize=131072",
				"nf_conntrack_tcp_timeout_established=86400", "nf_conntrack_tcp_timeout_close_wait=3600",
				"nf_conntrack_tcp_be_liberal=1", "nf_conntrack_udp_timeout=61", "nf_conntrack_udp_timeout_stream=90",
			},
		},
		{name: "9.13 nothing, whatever is there", before: map[string]string{sysctls + "nf_conntrack_tcp_be_liberal": "1"}},
		{name: "9.13 negative is like unset", set: Conntrack{MaxPerCore: -1, TCPEstablishedTimeout: -time.Second, UDPTimeout: -1}},
		{name: "9.13 a part of a second is not zero", set: Conntrack{UDPTimeout: time.Millisecond}, want: []string{"nf_conntrack_udp_timeout=1"}},
		{name: "9.14 liberal alone", set: Conntrack{TCPBeLiberal: true}, want: []string{"nf_conntrack_tcp_be_liberal=1"}},
		{name: "9.15 a minimum alone does nothing", set: Conntrack{Min: 123456}},
		{name: "9.16 a larger limit stays", set: Conntrack{MaxPerCore: 1, Min: 1000}},
		{name: "9.16 no limit stays", set: Conntrack{MaxPerCore: 32768}, before: map[string]string{sysctls + "nf_conntrack_max": "0"}},
		{name: "9.17 the table grows for a limit that was there", set: Conntrack{MaxPerCore: 4096},
			before: map[string]string{hashsize: "1024"}, want: []string{"hashsize=8192"}},
		{name: "9.17 the table is large enough", set: Conntrack{MaxPerCore: 32768}, want: []string{"nf_conntrack_max=262144"}},
		{name: "9.17 the table is too small by one", set: Conntrack{MaxPerCore: 32768}, before: map[string]string{hashsize: "65535"},
			want: []string{"nf_conntrack_max=262144", "hashsize=65536"}},
		{name: "9.18 equal values are not written", set: Conntrack{MaxPerCore: 8192, TCPCloseWaitTimeout: time.Minute, UDPTimeout: 30 * time.Second}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := files()
			maps.Copy(before, c.before)
			s := tree(t, before)
			log, logged := logger()
			if err := s.SetConntrack(c.set, nil, log); err != nil {
				t.Fatal(err)
			}
			if got := written(logged.String()); !slices.Equal(got, c.want) {
				t.Errorf("written %q, want %q", got, c.want)
			}
			for name, old := range before {
				want := old
				for _, w := range c.want {
					if file, value, _ := strings.Cut(w, "="); strings.HasSuffix(name, "/"+file) {
						want = value
					}
				}
				if got := content(t, s, name); got != want {
					t.Errorf("%s holds %s, want %s", name, got, want)
				}
			}
		})
	}
}

// written returns the settings in a log as file=value.
func written(log string) []string {
	var out []string
	for line := range strings.Lines(log) {
		_, file, _ := strings.Cut(line, "file=")
		file, _, _ = strings.Cut(file, " ")
		_, value, _ := strings.Cut(line, "to=")
		out = append(out, file[strings.LastIndex(file, "/")+1:]+"="+strings.TrimSpace(value))
	}
	return out
}

// 9.18: what cannot be read or written ends the start, and the error says what
// to do.
func TestSetConntrackFails(t *testing.T) {
	for _, c := range []struct {
		file string
		set  Conntrack
		says string
	}{
		{"nf_conntrack_max", Conntrack{MaxPerCore: 1}, "--conntrack-max-per-core=0"},
		{"hashsize", Conntrack{MaxPerCore: 1}, "--conntrack-max-per-core=0"},
		{"nf_conntrack_tcp_timeout_established", everything, "--conntrack-tcp-timeout-established=0s"},
		{"nf_conntrack_tcp_timeout_close_wait", everything, "--conntrack-tcp-timeout-close-wait=0s"},
		{"nf_conntrack_tcp_be_liberal", everything, "--conntrack-tcp-be-liberal=false"},
		{"nf_conntrack_udp_timeout", everything, "--conntrack-udp-timeout=0s"},
		{"nf_conntrack_udp_timeout_stream", everything, "--conntrack-udp-timeout-stream=0s"},
	} {
		for _, fault := range []struct{ name, says string }{
			{"cannot be used", "--init-only"},
			{"is missing", "load the module nf_conntrack"},
		} {
			t.Run(c.file+" "+fault.name, func(t *testing.T) {
				broken := files()
				for name := range broken {
					switch {
					case !strings.HasSuffix(name, "/"+c.file):
					case fault.name == "is missing":
						delete(broken, name)
					default:
						broken[name] = ""
					}
				}
				log, logged := logger()
				err := tree(t, broken).SetConntrack(c.set, nil, log)
				if err == nil {
					t.Fatal("no error")
				}
				for _, want := range []string{c.file, c.says, fault.says} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not say %q", err, want)
					}
				}
				if c.file == "nf_conntrack_tcp_timeout_established" && !slices.Equal(written(logged.String()), []string{"nf_conntrack_max=524288", "hashsize=131072"}) {
					t.Errorf("written before the error: %q", logged)
				}
			})
		}
	}
	t.Run("hashsize is no number", func(t *testing.T) {
		broken := files()
		broken[hashsize] = "many"
		log, _ := logger()
		if err := tree(t, broken).SetConntrack(everything, nil, log); err == nil {
			t.Error("no error")
		}
	})
}

// settings are those of a network namespace.
type settings struct {
	*netlab.Namespace
	*testing.T
}

func (s settings) set(c Conntrack) (logged string, err error) {
	log, text := logger()
	err = s.Do(func() error { return System("").SetConntrack(c, nil, log) })
	return text.String(), err
}

func (s settings) read(name string) (text string) {
	s.Helper()
	if err := s.Do(func() (err error) { text, err = System("").read(sysctls + name); return err }); err != nil {
		s.Fatal(err)
	}
	return text
}

// TestKernelTimeouts writes settings of a network namespace, once (9.18).
func TestKernelTimeouts(t *testing.T) {
	ns := settings{netlab.TestNamespace(t), t}
	timeouts := everything
	timeouts.MaxPerCore = 0
	if _, err := ns.set(timeouts); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"nf_conntrack_tcp_timeout_established": "86400",
		"nf_conntrack_tcp_timeout_close_wait":  "3600",
		"nf_conntrack_tcp_be_liberal":          "1",
		"nf_conntrack_udp_timeout":             "61",
		"nf_conntrack_udp_timeout_stream":      "90",
	} {
		if got := ns.read(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if log, err := ns.set(timeouts); err != nil || log != "" {
		t.Errorf("once more: %q, %v, want no write", log, err)
	}
}

// TestKernelLimit: the number of connections belongs to the machine. A namespace
// cannot write it, and that is an error unless it is right already (9.18).
func TestKernelLimit(t *testing.T) {
	netlab.SkipInUserNamespace(t, "reading the size of the connection tracking table")
	ns := settings{netlab.TestNamespace(t), t}
	most, err := strconv.Atoi(ns.read("nf_conntrack_max"))
	if err != nil {
		t.Fatal(err)
	}
	if cpus := System("").onlineCPUs(); most/cpus*cpus != most || most > maxEntries {
		fmt.Fprintf(t.Output(), "limit of %d connections cannot be asked for with %d CPUs\n", most, cpus)
	} else if log, err := ns.set(Conntrack{MaxPerCore: most / cpus}); err != nil {
		t.Errorf("limit that holds already: %q, %v", log, err)
	}
	if log, err := ns.set(Conntrack{MaxPerCore: 1, Min: most - 1}); err != nil || log != "" {
		t.Errorf("limit below the one that holds: %q, %v, want no write (9.16)", log, err)
	}
	if _, err := ns.set(Conntrack{MaxPerCore: 1, Min: most + 1}); err == nil || !strings.Contains(err.Error(), "--init-only") {
		t.Errorf("limit that cannot be written: %v", err)
	}
	if got := ns.read("nf_conntrack_max"); got != fmt.Sprint(most) {
		t.Errorf("limit became %s", got)
	}
}
