package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// KeepOff writes the commands of kubectl that make kube-proxy's pods leave the nodes with the label,
// and not return.
func (c *Client) KeepOff(ctx context.Context, w io.Writer) error {
	return c.writeCommands(ctx, w, c.Label.keepOff, "keeps off nodes with "+c.Label.String()+" already")
}

// Undo writes the commands of kubectl that let kube-proxy's pods return to the nodes with the label.
func (c *Client) Undo(ctx context.Context, w io.Writer) error {
	return c.writeCommands(ctx, w, c.Label.undo, "does not depend on "+c.Label.String())
}

// writeCommands writes commands for a shell. Without anything to do, done says so in a comment.
func (c *Client) writeCommands(ctx context.Context, w io.Writer, patchFor func(*daemon) (patch, error), done string) error {
	d, err := c.read(ctx)
	if err != nil {
		return err
	}
	p, err := patchFor(d)
	if err != nil {
		return fmt.Errorf("read affinity of DaemonSet %s: %w", c.Target, err)
	}
	if p.kind == "" {
		_, err := fmt.Fprintf(w, "# Nothing to do: DaemonSet %s %s.\n", c.Target, done)
		return err
	}
	body, err := json.Marshal(p.body)
	if err != nil {
		return err
	}
	kubectl := "kubectl " + c.flags() + "-n " + c.Namespace
	wait := fmt.Sprintf("%s rollout status daemonset/%s", kubectl, c.DaemonSet)
	if d.Spec.UpdateStrategy.Type == "OnDelete" {
		wait = "# Its updateStrategy is OnDelete: pods of other nodes are not restarted. Wait with: nftproxy migrate status"
	}
	_, err = fmt.Fprintf(w, "%s patch daemonset %s --type=%s -p %s\n%s\n", kubectl, c.DaemonSet, p.kind, quote(string(body)), wait)
	return err
}

func (c *Client) flags() (text string) {
	if c.access.Kubeconfig != "" {
		text += "--kubeconfig " + quote(c.access.Kubeconfig) + " "
	}
	if c.access.Context != "" {
		text += "--context " + quote(c.access.Context) + " "
	}
	return text
}

// quote returns a word for a shell.
func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
