// Command nftproxy is a Kubernetes service proxy for Linux nodes with nftables.
// Run it without arguments for an introduction.
package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/command"
	"github.com/nftproxy/nftproxy/internal/command/change"
	"github.com/nftproxy/nftproxy/internal/command/input"
	"github.com/nftproxy/nftproxy/internal/command/lifecycle"
	"github.com/nftproxy/nftproxy/internal/command/look"
	"github.com/nftproxy/nftproxy/internal/command/rules"
	"github.com/nftproxy/nftproxy/internal/command/support"
)

func main() {
	os.Exit(run(command.ArgumentsOf(os.Args), os.Stdin, os.Stdout, os.Stderr))
}

// version is set at build time.
var version = "(devel)"

// run executes one command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Execute(rootCommand(), args, stdin, stdout, stderr)
}

// commands returns the commands of the program, in the order of the help.
func commands() []command.Group {
	return []command.Group{
		{Title: "From files or a cluster to rules", Commands: []*cobra.Command{
			input.BalanceCommand(), input.ImportCommand(), rules.RenderCommand(), input.ValidateCommand(),
			rules.DiffCommand(), rules.ApplyCommand(), lifecycle.RunCommand(),
		}},
		{Title: "See what is going on", Commands: []*cobra.Command{
			look.StatusCommand(), look.DescribeCommand(), look.ExplainCommand(), look.TraceCommand(),
			look.TestCommand(), look.TopCommand(), look.ObserveCommand(),
		}},
		{Title: "Maintenance", Commands: []*cobra.Command{
			change.DrainCommand(), change.UndrainCommand(), change.SetCommand(), change.AddCommand(),
			change.RemoveCommand(), change.DisableCommand(), change.EnableCommand(), change.UndoChangesCommand(),
		}},
		{Title: "Before and after", Commands: []*cobra.Command{
			support.CheckCommand(), lifecycle.MigrateCommand(), lifecycle.CleanupCommand(), support.BundleCommand(),
		}},
		{Title: command.OtherGroup, Commands: []*cobra.Command{
			input.SchemaCommand(), command.VersionCommand(),
		}},
		{Commands: []*cobra.Command{look.PeerCommand(), clusterCommand()}}, // hidden
	}
}

func rootCommand() *cobra.Command {
	return command.NewProgram(version, &cobra.Command{
		Use:   "nftproxy",
		Short: "Kubernetes service proxy for Linux nodes with nftables",
		Long: `nftproxy turns Services and EndpointSlices into nftables rules.

It reads objects as "kubectl get services,endpointslices,nodes -A -o yaml"
prints them, from files or from standard input, and Balances, a short form
for one machine, which "nftproxy new" writes: in texts about flags, a Balance
is also a Service, and its servers are endpoints. Four steps lead from a file
to balanced traffic; the first two need neither root nor a kernel:

  nftproxy validate -f services.yaml  find mistakes
  nftproxy render -f services.yaml    print the rules
  nftproxy diff -f services.yaml      show what would change in the kernel
  nftproxy run -f services.yaml       apply, and follow the file as it changes

Others answer questions:

  nftproxy status                     what is wrong, and what this node serves
  nftproxy describe shop/web          one Service or Balance: its servers, shares and options
  nftproxy explain 10.96.0.10:80      which rules a connection meets, and where it goes
  nftproxy trace shop/web             what the rules of all programs do with a real connection
  nftproxy test shop/web              whether connections in every way go where they should
  nftproxy top                        connections per second, changes, problems
  nftproxy observe                    which connections were refused, and why
  nftproxy check                      whether this machine is ready to serve

Before maintenance of a server:

  nftproxy drain 10.128.0.2           no new connections to it; how many are still open

All nodes of a cluster at once, by a program of its own:

  kubectl nftproxy status             which nodes need attention, the worst first

With --kubeconfig, or in a pod, the objects come from an API server instead.
"nftproxy run" takes the flags and the configuration file of kube-proxy.

All rules are in the tables "ip nftproxy" and "ip6 nftproxy". nftproxy touches
no other tables, except to remove kube-proxy's leftovers when it takes over.
"nft list table ip nftproxy" shows the rules, "nftproxy cleanup" removes them.`,
	}, commands())
}
