package migrate

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/internal/terminal"
)

// JSON writes the patch, as kubectl patch --type=json takes it.
func (ch *Change) JSON(w io.Writer) error {
	p := ch.Patch
	if p == nil {
		p = Patch{}
	}
	return terminal.JSON(w, p)
}

// Print writes what has changed, and what to do next.
func (ch *Change) Print(w io.Writer, paint bool) error {
	p := terminal.NewPrinter(w, "")
	p.Colours = paint
	p.Line("DaemonSet %s: required node affinity of its pods", ch.Target)
	ch.printTerms(p)
	p.Line("")
	p.Line("%s", ch.outcome())
	if ch.Patch != nil && len(ch.Nodes) > 0 {
		what := "kube-proxy leaves them, so run nftproxy there"
		if ch.Undo {
			what = "kube-proxy returns to them, so nftproxy must not run there"
		}
		p.Line("Nodes with %s: %s; %s.", ch.Label, someOf(ch.Nodes), what)
	}
	switch {
	case ch.Patch == nil || ch.DryRun:
	case ch.onDelete:
		p.Line("Its updateStrategy is OnDelete: pods come to and leave nodes with the label, its rules stay meanwhile,")
		p.Line("and pods of other nodes are not restarted. Wait for that:")
		p.Line("  nftproxy migrate status")
	default:
		p.Line("kube-proxy's pods restart one after the other, and its rules stay meanwhile. Wait for that:")
		p.Line("  kubectl -n %s rollout status daemonset/%s", ch.Namespace, ch.DaemonSet)
	}
	return p.Flush()
}

func (ch *Change) outcome() string {
	switch {
	case ch.Patch == nil && ch.Undo:
		return fmt.Sprintf("No changes: it does not depend on %s.", ch.Label)
	case ch.Patch == nil:
		return fmt.Sprintf("No changes: it keeps off nodes with %s already.", ch.Label)
	case ch.DryRun:
		return "Dry run: the API server accepts the change and has not stored it."
	case ch.Undo:
		return fmt.Sprintf("Changed: it no longer depends on %s.", ch.Label)
	}
	return fmt.Sprintf("Changed: it keeps off nodes with %s.", ch.Label)
}

// printTerms writes the terms with the conditions that have been added or removed.
func (ch *Change) printTerms(p *terminal.Printer) {
	shown, other, sign, colour := ch.after.terms(), ch.before.terms(), "+", terminal.Green
	if ch.Undo {
		shown, other, sign, colour = other, shown, "-", terminal.Red
	}
	if len(shown) == 0 {
		p.Line("    none: all nodes that match its node selector")
	}
	for i, t := range shown {
		for j, line := range conditions(t) {
			name := ""
			if j == 0 {
				name = fmt.Sprintf("term %d:", i+1)
			}
			changed := i >= len(other) || !slices.Contains(conditions(other[i]), line)
			switch {
			case changed:
				p.Painted(colour, "  %s %-8s %s", sign, name, line)
			default:
				p.Line("    %-8s %s", name, line)
			}
		}
	}
}

// conditions returns the conditions of a term, one a line.
func conditions(t corev1.NodeSelectorTerm) (lines []string) {
	for _, r := range t.MatchFields {
		lines = append(lines, "field "+condition(r))
	}
	for _, r := range t.MatchExpressions {
		lines = append(lines, condition(r))
	}
	if lines == nil {
		lines = []string{"no condition: selects no node"}
	}
	return lines
}

func condition(r corev1.NodeSelectorRequirement) string {
	text := r.Key + " " + string(r.Operator)
	if len(r.Values) > 0 {
		text += " [" + strings.Join(r.Values, " ") + "]"
	}
	return text
}

// maxNames limits the names of objects in a line.
const maxNames = 5

func someOf(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}
