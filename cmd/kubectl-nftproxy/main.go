// Command kubectl-nftproxy asks the nftproxy of every node of a cluster. kubectl runs it as "kubectl nftproxy", on Linux,
// macOS and Windows.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/cli/declare"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/kubectl"
	"github.com/nftproxy/nftproxy/internal/source/cluster"
)

// version is set at build time.
var version = "(devel)"

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Execute(rootCommand(), args, stdin, stdout, stderr)
}

// access finds the API server by the flags of kubectl.
type access struct{ *genericclioptions.ConfigFlags }

// Config returns how to reach the API server.
func (a access) Config() (*rest.Config, error) {
	config, err := a.ToRESTConfig()
	return kubectl.Complete(config, err, *a.KubeConfig, "kubectl-nftproxy/"+version)
}

// qualify adds the namespace of --namespace to a name without one.
func (a access) qualify(name string) string {
	if *a.Namespace == "" || name == "" || strings.Contains(name, "/") {
		return name
	}
	return *a.Namespace + "/" + name
}

func rootCommand() *cobra.Command {
	a := access{genericclioptions.NewConfigFlags(true)}
	root := &cobra.Command{
		Use:         "kubectl-nftproxy",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl nftproxy"},
		Version:     version,
		Short:       "Ask the nftproxy of every node, through the API server",
		Long: `Ask the nftproxy of every node of a cluster, and judge the answers together.

The nodes are reached as "kubectl port-forward" does it, with the access of kubectl and
its flags. Nothing has to listen on the network for that. docs/kubectl.md lists the
permissions.`,
		Example: `  kubectl nftproxy status
  kubectl nftproxy status --context staging`,
		Args:          cli.NoArguments,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetVersionTemplate(versionLine())
	root.SetFlagErrorFunc(cli.FlagError)
	a.AddFlags(root.PersistentFlags())
	root.AddGroup(&cobra.Group{ID: "see", Title: "See what is going on:"}, &cobra.Group{ID: "try", Title: "Try and measure:"}, &cobra.Group{ID: "keep", Title: "Collect:"})
	for id, commands := range map[string][]*cobra.Command{
		"see":  {statusCommand(a), diffCommand(a), describeCommand(a), explainCommand(a), observeCommand(a)},
		"try":  {testCommand(a), convergeCommand(a)},
		"keep": {bundleCommand(a)},
	} {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	root.AddCommand(versionCommand())
	complete(root)
	return root
}

func versionLine() string {
	return fmt.Sprintf("kubectl-nftproxy %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the versions of this program and of Go, and the platform that it was built for.\n\nExit code: 0 printed, 2 error.",
		Example: "  kubectl nftproxy version",
		Args:    cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.OutOrStdout(), versionLine())
			return err
		},
	}
}

// complete has the shell complete contexts, and file names only where they can be.
func complete(root *cobra.Command) {
	contexts := func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return cluster.Contexts(c.Flags().Lookup("kubeconfig").Value.String()), cobra.ShellCompDirectiveNoFileComp
	}
	_ = root.RegisterFlagCompletionFunc("context", contexts) // fails only for an unknown flag
	for _, c := range root.Commands() {
		if c.ValidArgsFunction == nil {
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if values := declare.ValuesOf(f); values != nil {
				_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)) // as above
			}
		})
	}
}
