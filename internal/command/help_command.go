package command

import (
	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
)

// addHelpCommand replaces cobra's command help, which prints the help of the program for a word that
// it does not know.
func addHelpCommand(root *cobra.Command) {
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		Long:  "Print the help of a command, as COMMAND --help does.\n\nExit code: 0 printed, 2 there is no such command.",
		Args: func(c *cobra.Command, args []string) error {
			if found, rest, err := c.Root().Find(args); err != nil || len(rest) > 0 {
				return cli.UnknownCommand(found, args[len(args)-len(rest)])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			found, _, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			addHelpFlag(found)
			return found.Help()
		},
		ValidArgsFunction: completeCommands,
	})
}

// completeCommands completes the words of a command.
func completeCommands(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if found, rest, err := c.Root().Find(args); err == nil && len(rest) == 0 {
		for _, sub := range found.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
