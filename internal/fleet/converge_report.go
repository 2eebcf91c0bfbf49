package fleet

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/model"
)

// Convergence is how long changes take from the API server to the kernels of nodes. Times are in
// seconds. The names of the JSON fields are stable.
type Convergence struct {
	APIVersion api.Version `json:"apiVersion"`
	Started    time.Time   `json:"started,omitzero"`
	Seconds    float64     `json:"seconds"` // that it took
	Rounds     int         `json:"rounds"`  // that were measured
	Wait       float64     `json:"wait"`    // for a node, in a round
	// Times are from the answer of the API server until the kernel has the change, of all nodes
	// and rounds. A change that the kernel had before the answer arrived counts as 0.
	Times Distribution `json:"times"`
	// Excess is by how much each time is too long at most: until the node, which said how long the
	// kernel has had the change, was heard.
	Excess    Distribution `json:"excess"`
	Histogram []Bucket     `json:"histogram"`
	// Changes are these that were measured, in the order of the rounds.
	Changes []Written   `json:"changes"`
	Nodes   []NodeTimes `json:"nodes"` // these without all times first, then the slowest
	// Uncovered are nodes for which there is no nftproxy, for example because kube-proxy serves
	// there.
	Uncovered []string `json:"uncovered,omitempty"`
	Namespace string   `json:"namespace"` // that was used
	kubectl.Leftovers

	excess []float64
}

// Written is a change of the EndpointSlice.
type Written struct {
	Endpoint string    `json:"endpoint"` // with the port
	Answered time.Time `json:"answered"` // when the answer of the API server had arrived here
}

// Distribution has quantiles of durations in seconds.
type Distribution struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Bucket counts the times up to a duration that are in no bucket before.
type Bucket struct {
	UpTo  float64 `json:"upTo"`
	Count int     `json:"count"`
}

// NodeTimes are the times of a node.
type NodeTimes struct {
	Name string `json:"name"`
	// Seconds are the times in the order of the rounds.
	Seconds []float64 `json:"times"`
	P50     float64   `json:"p50"`
	Max     float64   `json:"max"`
	Excess  float64   `json:"excess"` // the most of all rounds
	// Reason is why rounds are missing.
	Reason string `json:"reason,omitempty"`
}

// Complete reports whether all nodes have all times.
func (r *Convergence) Complete() bool { return len(r.Nodes) > 0 && r.Nodes[0].Reason == "" }

func (r *Convergence) addNodes(nodes []Node, agents []Agent) {
	has := make(map[string]bool)
	for _, a := range agents {
		if !has[a.Node] {
			has[a.Node] = true
			r.Nodes = append(r.Nodes, NodeTimes{Name: a.Node, Seconds: []float64{}})
		}
	}
	for i := range nodes {
		switch n := &nodes[i]; {
		case has[n.Name]:
		case n.Wanted:
			r.Nodes = append(r.Nodes, NodeTimes{Name: n.Name, Seconds: []float64{}, Reason: "no pod of nftproxy is on the node"})
		default:
			r.Uncovered = append(r.Uncovered, n.Name)
		}
	}
	slices.SortFunc(r.Nodes, func(a, b NodeTimes) int { return cmp.Compare(a.Name, b.Name) })
}

// node returns a node while they are sorted by name.
func (r *Convergence) node(name string) *NodeTimes {
	i, _ := slices.BinarySearchFunc(r.Nodes, name, func(n NodeTimes, name string) int { return cmp.Compare(n.Name, name) })
	return &r.Nodes[i]
}

func (r *Convergence) add(node string, took, excess time.Duration) {
	n := r.node(node)
	n.Seconds = append(n.Seconds, took.Seconds())
	n.Excess = max(n.Excess, excess.Seconds())
	r.excess = append(r.excess, excess.Seconds())
}

func (r *Convergence) finish() {
	var all []float64
	for i := range r.Nodes {
		n := &r.Nodes[i]
		d := distribution(n.Seconds)
		n.P50, n.Max = d.P50, d.Max
		all = append(all, n.Seconds...)
	}
	r.Times, r.Excess, r.Histogram = distribution(all), distribution(r.excess), histogram(all)
	slices.SortFunc(r.Nodes, func(a, b NodeTimes) int {
		return cmp.Or(model.CompareBool(b.Reason != "", a.Reason != ""), cmp.Compare(b.Max, a.Max), cmp.Compare(a.Name, b.Name))
	})
}

// distribution returns quantiles: the smallest duration that at least that share does not exceed.
func distribution(seconds []float64) Distribution {
	n := len(seconds)
	if n == 0 {
		return Distribution{}
	}
	sorted := slices.Sorted(slices.Values(seconds))
	at := func(percent int) float64 { return sorted[(n*percent+99)/100-1] }
	return Distribution{n, at(50), at(90), at(99), sorted[n-1]}
}

// histogram returns buckets of growing width, from the first to the last one that counts.
func histogram(seconds []float64) []Bucket {
	out := []Bucket{}
	sorted := slices.Sorted(slices.Values(seconds))
	for step, begin := 0, 0; begin < len(sorted); step++ {
		upTo := bound(step)
		end := begin
		for end < len(sorted) && sorted[end] <= upTo {
			end++
		}
		if n := end - begin; n > 0 || len(out) > 0 {
			out = append(out, Bucket{upTo, n})
		}
		begin = end
	}
	return out
}

// bound returns 1, 2, 5, 10, 20, 50 ... milliseconds in seconds.
func bound(step int) float64 {
	return []float64{1, 2, 5}[step%3] * math.Pow10(step/3) / 1000
}
