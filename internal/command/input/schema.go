package input

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/internal/cli"
	"github.com/nftproxy/nftproxy/internal/source/balance"
)

func SchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a Balance, for editors",
		Long: `Print the JSON Schema of the kinds Balance, Servers and Defaults. Editors with
yaml-language-server (Visual Studio Code, Vim, Emacs...) complete and check a file whose first line is

  # yaml-language-server: $schema=balance.json

with the path or URL of the schema. "nftproxy validate" checks more than the
schema can express.

Exit code: 0 printed, 2 error.`,
		Example: `  nftproxy schema > balance.json`,
		Args:    cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := c.OutOrStdout().Write(balance.Schema()); err != nil {
				return fmt.Errorf("write schema: %w", err)
			}
			return nil
		},
	}
}
