package command

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli/common"
	"github.com/nftproxy/nftproxy/internal/cli/declare"
	"github.com/nftproxy/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/internal/drain"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
)

// completionTimeout limits how long the shell waits for a daemon's answer.
const completionTimeout = 500 * time.Millisecond

// addCompletion has the shell complete values of flags and arguments. It completes
// file names only for flags that take files.
func addCompletion(root *cobra.Command) {
	for _, c := range root.Commands() {
		addCompletion(c)
		if c.ValidArgsFunction == nil && len(c.ValidArgs) == 0 {
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if complete := flagCompletion(f); complete != nil {
				_ = c.RegisterFlagCompletionFunc(f.Name, complete) // fails only if the command registered one itself
			}
		})
	}
}

// flagCompletion returns nil for flags that take files.
func flagCompletion(f *pflag.Flag) cobra.CompletionFunc {
	kind, _ := pflag.UnquoteUsage(f)
	values := declare.ValuesOf(f)
	switch {
	case kind == "file" && (f.Name == filesFlag || f.Name == "from"):
		return cobra.FixedCompletions([]string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt)
	case kind == "file":
		return nil
	case values != nil:
	case f.Name == config.KubeContext:
		return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return cluster.Contexts(c.Flags().Lookup("kubeconfig").Value.String()), cobra.ShellCompDirectiveNoFileComp
		}
	case f.Name == "namespace":
		return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return distinct(servedPorts(c), func(p api.ServicePort) []string { return []string{p.Namespace} }), cobra.ShellCompDirectiveNoFileComp
		}
	}
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// CompleteExplain completes a protocol or a Service, then the destinations that this node
// serves.
func CompleteExplain(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return append(slices.Clone(common.Protocols), serviceNames(servedPorts(c))...), cobra.ShellCompDirectiveNoFileComp
	case 1:
		if !slices.Contains(common.Protocols, args[0]) { // the name of a Service stands alone
			break
		}
		ports := servedPorts(c)
		return append(destinations(ports, args[0]), serviceNames(ports)...), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// servedPorts returns the service ports of the daemon on this machine, or none if it does
// not answer in time.
func servedPorts(c *cobra.Command) (out []api.ServicePort) {
	askQuickly(c, func(ctx context.Context, client *api.Client) {
		if report, err := client.Status(ctx, &api.Filter{}); err == nil {
			out = report.ServicePorts
		}
	})
	return out
}

// askQuickly asks the daemon on this machine, for as long as a shell may wait.
func askQuickly(c *cobra.Command, ask func(context.Context, *api.Client)) {
	var d Finder
	if f := c.Flags().Lookup("metrics-bind-address"); f != nil {
		d.Address = f.Value.String()
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	_ = d.Ask(func(client *api.Client) error { // without an answer, nothing is completed
		ask(ctx, client)
		return nil
	})
}

// CompleteEndpoints completes the endpoints of this node.
func CompleteEndpoints(c *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
	report := &api.Drains{}
	askQuickly(c, func(ctx context.Context, client *api.Client) {
		if answer, err := client.Drains(ctx, api.DrainQuery{Begin: &begin}); err == nil {
			report = answer
		}
	})
	return slices.DeleteFunc(report.Endpoints, func(w string) bool { return !shellSafe.MatchString(w) }), cobra.ShellCompDirectiveNoFileComp
}

// CompleteServices completes the names of Services that this node serves.
func CompleteServices(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return serviceNames(servedPorts(c)), cobra.ShellCompDirectiveNoFileComp
}

func serviceNames(ports []api.ServicePort) []string {
	return distinct(ports, func(p api.ServicePort) []string { return []string{p.Namespace + "/" + p.Name} })
}

// destinations returns the destinations of clients of a protocol, with the names of their
// Services.
func destinations(ports []api.ServicePort, protocol string) []string {
	return distinct(ports, func(p api.ServicePort) (out []string) {
		for _, f := range p.Frontends {
			to, err := netip.ParseAddrPort(f.Address) // an error: a NodePort of all addresses
			if err == nil && strings.EqualFold(p.Protocol, protocol) {
				out = append(out, to.String()+"\t"+p.Namespace+"/"+p.Name)
			}
		}
		return out
	})
}

// shellSafe matches words without a meaning to shells. Without a daemon any user may
// answer on its port.
var shellSafe = regexp.MustCompile(`^[][:\t/a-zA-Z0-9.-]+$`)

// distinct returns the results of words for all ports, sorted, each once.
func distinct(ports []api.ServicePort, words func(api.ServicePort) []string) (out []string) {
	for _, p := range ports {
		out = append(out, words(p)...)
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(w string) bool { return !shellSafe.MatchString(w) })
}

// CompleteDrained completes drained endpoints, as the file has them.
func CompleteDrained(c *cobra.Command, _ []string, _ string) (out []string, _ cobra.ShellCompDirective) {
	path := config.DefaultDrainFile
	if f := c.Flags().Lookup("drain-file"); f != nil && f.Value.String() != "" {
		path = f.Value.String()
	}
	list, _ := drain.File{Path: path}.Read() // completion shows no errors
	for _, e := range list {
		out = append(out, e.Endpoint())
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
