package descriptors

import (
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// TestShares: 3.25. All parts together leave room for the rest of the process.
func TestShares(t *testing.T) {
	for _, n := range []int{0, 24, 64, 128, 256, 1024, 2048, 4096, 1 << 20} {
		for _, localhost := range []bool{false, true} {
			network, programs := checks(n, localhost)
			used := network + 4*programs + connections(n, 256)*2 + connections(n, 1024)
			if n >= 256 { // fewer make one connection
				used += relay(n, localhost) * relayed
			}
			if localhost {
				used += n/2 + n/4 // its listeners and connections
			}
			if n >= 256 && n-used < 16 {
				t.Errorf("of %d, %d are left: %d checks, %d programs, localhost %v", n, n-used, network, programs, localhost)
			}
			if network < 1 || programs < 1 || n >= 4096 && !localhost && (network != budget.Checks || programs != budget.CheckPrograms) {
				t.Errorf("of %d: %d checks, %d programs", n, network, programs)
			}
		}
	}
	if network, _ := checks(1024, false); network != 496 {
		t.Errorf("of 1024: %d checks", network)
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
