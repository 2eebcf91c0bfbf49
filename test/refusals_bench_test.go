package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/testkit/netlab"
)

// BenchmarkRefused measures what a refused UDP packet of a pod costs, from the send on: the node
// handles the packet in the same call, on the sender's processor. Two nodes, one for each level
// of --observe, take turns of about a millisecond, so that other load has both, and the ratio is
// the median of the pairs. All packets are to one frontend, whose counter and limits they share.
func BenchmarkRefused(b *testing.B) {
	const rounds, packets = 2_000, 250
	levels := []string{"off", "refusals"}
	labs := []*netlab.Lab{netlab.TestLab(b, 1), netlab.TestLab(b, 1)}
	denied := service{Name: "denied", N: 1, Annotations: listed(nil, []string{"0.0.0.0/0", "::/0"})}
	for i, lab := range labs {
		denied.Pods = lab.Pods
		file := filepath.Join(b.TempDir(), "services.yaml")
		if err := os.WriteFile(file, []byte(renderInput(b, lab.Node, []service{denied})), 0o644); err != nil {
			b.Fatal(err)
		}
		args := slices.Concat([]string{"apply", "-f", file, "--hostname-override", nodeName, "--observe=" + levels[i]}, clusterCIDR)
		if err := lab.Node.Run(exec.Command(binary, args...)); err != nil {
			b.Fatalf("apply --observe=%s: %v", levels[i], err)
		}
	}
	for _, family := range model.Families {
		b.Run(family.String(), func(b *testing.B) {
			var costs [2][]float64
			var ratios []float64
			var flows [2]int
			for i, lab := range labs {
				fd := newSocket(b, lab.Pods[0], family, unix.SOCK_DGRAM)
				if err := unix.Connect(fd, socketAddress(denied.clusterIP(family))); err != nil {
					b.Fatal(err)
				}
				flows[i] = fd
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				for range rounds {
					for i, flow := range flows {
						start := usedTime(b)
						for range packets {
							if _, err := unix.Write(flow, []byte("?\n")); err != nil {
								b.Fatal(err)
							}
						}
						costs[i] = append(costs[i], float64((usedTime(b)-start).Nanoseconds())/packets)
					}
					last := len(costs[0]) - 1
					ratios = append(ratios, costs[1][last]/costs[0][last])
				}
			}
			median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
			for i, level := range levels {
				b.ReportMetric(median(costs[i]), "ns/"+level)
			}
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
