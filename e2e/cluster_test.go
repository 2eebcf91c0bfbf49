// Package e2e holds end-to-end tests: the real program, the kernel of this
// machine and real packets, as in package test; the program learns about
// services from a real kube-apiserver with its etcd.
//
// It is a module of its own, and so are the programs of Kubernetes (directory
// tools): they are built with the dependencies that they are released with,
// whatever nftproxy depends on.
package e2e

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

// cluster is a cluster with what these tests do to it.
type cluster struct{ *testbed.Cluster }

// newCluster makes the cluster of a test.
func newCluster(t testing.TB, pods int, flags ...string) *cluster {
	t.Helper()
	return &cluster{testbed.NewCluster(t, pods, flags...)}
}
