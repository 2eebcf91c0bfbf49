package descriptors

import (
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// TestShares: 3.25. All parts together leave room for the rest of the process.
func TestShares(t *testing.T) {
	for _, n := range []int{0, 24, 64, 128, 256, 1024, 2048, 4096, 1 << 20} {
		for _, besideLocalhost := range []bool{false, true} {
			network, programs := checkLimits(n, besideLocalhost)
			used := network + 4*programs + connectionLimit(n, 256)*2 + connectionLimit(n, 1024)
			if n >= 256 { // fewer make one connection
				used += relayLimit(n, besideLocalhost) * forwarded
			}
			if besideLocalhost {
				used += n/2 + n/4 // its listeners and connections
			}
			if n >= 256 && n-used < 16 {
				t.Errorf("of %d, %d are left: %d checks, %d programs, localhost %v", n, n-used, network, programs, besideLocalhost)
			}
			if network < 1 || programs < 1 || n >= 4096 && !besideLocalhost && (network != budget.Checks || programs != budget.CheckPrograms) {
				t.Errorf("of %d: %d checks, %d programs", n, network, programs)
			}
		}
	}
	if network, _ := checkLimits(1024, false); network != 496 {
		t.Errorf("of 1024: %d checks", network)
	}
}

// TestLocalhost: 6.19. Small limits of open files.
func TestLocalhost(t *testing.T) {
	for n, want := range map[int]LocalhostLimits{
		1024: {512, 42, 10}, 16: {8, 1, 1}, 65536: {32768, 2730, 682}, 524288: {262144, 4096, 1024}, 1 << 30: {1 << 29, 4096, 1024},
	} {
		if got := localhostLimits(n); got != want {
			t.Errorf("%d: %+v, want %+v", n, got, want)
		}
	}
}

// TestChecksFollowTheLimit: the limit of a running process may change.
func TestChecksFollowTheLimit(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) }()
	few := before
	few.Cur = min(before.Cur, 200)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	if network, programs := Checks(false); network != 84 || programs != 5 {
		t.Errorf("%d checks, %d programs", network, programs)
	}
	if n := Connections(1024); n != 6 {
		t.Errorf("%d connections", n)
	}
}
