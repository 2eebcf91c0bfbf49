package fleet

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

// Differences are what nodes hold and the API server does not ask for, or the other way round.
// The names of the JSON fields are stable.
type Differences struct {
	APIVersion api.Version       `json:"apiVersion"`
	Nodes      []NodeDifferences `json:"nodes"`
}

// NodeDifferences are the ones of a node.
type NodeDifferences struct {
	Name string `json:"name"`
	// Unknown is why the node could not be compared, or not all of it.
	Unknown  string    `json:"unknown,omitempty"`
	Compared time.Time `json:"compared,omitzero"` // when its kernel was read
	// Kernel are changes that would make the kernel hold what nftproxy there wants, the first
	// ones of KernelCount.
	Kernel      []api.Difference `json:"kernel"`
	KernelCount int              `json:"kernelCount"`
	// Objects are changes that would make nftproxy there want what the objects of the API
	// server ask for.
	Objects []api.Difference `json:"objects"`
	// Services is the number that were compared.
	Services int `json:"services"`
}

// Found reports whether a node differs, or is not known.
func (d *Differences) Found() bool {
	return slices.ContainsFunc(d.Nodes, func(n NodeDifferences) bool {
		return n.Unknown != "" || n.KernelCount+len(n.Objects) > 0
	})
}

// Print writes the differences, those of the kernel first.
func (d *Differences) Print(w io.Writer, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	for i := range d.Nodes {
		n := &d.Nodes[i]
		switch n.KernelCount + len(n.Objects) {
		case 0:
			if n.Unknown == "" {
				p.Painted(terminal.Green, "%s: no differences in %s", n.Name, terminal.Count(n.Services, "Service"))
			}
		default:
			p.Painted(terminal.Red, "%s: %s", n.Name, n.sum())
		}
		if n.Unknown != "" {
			p.Painted(terminal.Yellow, "%s: not known: %s", n.Name, n.Unknown)
		}
		list(p, "kernel", n.Kernel)
		if more := n.KernelCount - len(n.Kernel); more > 0 {
			p.Line("  kernel   and %d more", more)
		}
		list(p, "objects", n.Objects)
	}
	return p.Flush()
}

func (n *NodeDifferences) sum() string {
	return fmt.Sprintf("%s between the kernel and nftproxy there, %d between nftproxy there and the API server",
		terminal.Count(n.KernelCount, "difference"), len(n.Objects))
}

func list(p *terminal.Printer, side string, all []api.Difference) {
	for _, d := range all {
		service := ""
		if d.Service != "" {
			service = d.Service + ": "
		}
		p.Line("  %-8s %s%s", side, service, d.Change)
	}
}

// CompareElements returns what changes elements, as they are wanted on a node, to those that the
// objects ask for.
func CompareElements(service string, onNode, asked []string) (out []api.Difference) {
	for _, e := range asked {
		if !slices.Contains(onNode, e) {
			out = append(out, api.Difference{Service: service, Change: "add " + e})
		}
	}
	for _, e := range onNode {
		if !slices.Contains(asked, e) {
			out = append(out, api.Difference{Service: service, Change: "delete " + e})
		}
	}
	return out
}
