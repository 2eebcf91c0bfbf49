package main

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// seconds is a wait for something that works for a share of the time, and what happens each second.
func seconds(w *wait, n int, share float64) (err error) {
	var worked time.Duration
	w.work = func() (time.Duration, error) { return worked, nil }
	now := w.begin
	for range n {
		now, worked = now.Add(time.Second), worked+time.Duration(share*float64(time.Second))
		if err = w.check(now); err != nil {
			break
		}
	}
	return err
}

func TestWait(t *testing.T) {
	for name, test := range map[string]struct {
		seconds int
		share   float64
		load    float64
		says    string // in the error; empty: none
		remark  string
	}{
		"at work":                   {600, 1, 1, "", "(waiting until nftproxy has started)\n"},
		"at work on a busy machine": {600, 0.3, 40, "", "40 programs want its"},
		"at rest":                   {29, 0.001, 1, "", ""},
		"at rest for too long":      {32, 0.001, 1, "nftproxy has not started within 31s, and has done nothing for the last 30s", ""},
		"at rest, and busy":         {32, 0.001, 40 * float64(runtime.NumCPU()), "", "programs want its"},
		"at rest, busy, too long":   {1200, 0.001, 10 * float64(runtime.NumCPU()), "nftproxy has not started within 5m1s, and has done nothing for the last 5m0s", "programs want its"},
		"soon":                      {4, 0.001, 40, "", ""},
		"at work for ever":          {2000, 1, 1, "nftproxy has not started within 20m1s", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			w := &wait{what: "started", out: &out, load: func() float64 { return test.load }}
			err := seconds(w, test.seconds, test.share)
			if (err == nil) != (test.says == "") || err != nil && err.Error() != test.says {
				t.Errorf("the error is %v, want %q", err, test.says)
			}
			if !strings.Contains(out.String(), test.remark) || strings.Count(out.String(), "\n") > 1 || test.seconds < 5 && out.Len() > 0 {
				t.Errorf("the remark is %q, want %q", &out, test.remark)
			}
		})
	}
}
