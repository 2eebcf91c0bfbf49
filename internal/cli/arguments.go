package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/suggest"
)

// NoArguments refuses positional arguments and points to -f.
func NoArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasSubCommands() {
		return UnknownCommand(c, args[0])
	}
	hint := ""
	if c.Flags().Lookup("filename") != nil {
		hint = ": files are given with -f"
	}
	return fmt.Errorf("unexpected argument %q%s\nrun \"%s --help\" for the flags and examples", args[0], hint, c.CommandPath())
}

// DescribeArguments refuses everything but one name.
func DescribeArguments(c *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return fmt.Errorf("expected the name of a Service or Balance, for example\n  %s shop/web", c.CommandPath())
	}
	return nil
}

// UnknownCommand is the error for a word that is no command.
func UnknownCommand(root *cobra.Command, word string) error {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q%s\nrun \"%s\" for the list", word, suggest.DidYouMean(suggest.Similar(word, names)), root.CommandPath())
}

// FlagError adds the names of similar flags to the error for an unknown one.
func FlagError(c *cobra.Command, err error) error {
	hint := ""
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, "--"+f.Name)
			}
		})
		hint = suggest.DidYouMean(suggest.Similar("--"+unknown.GetSpecifiedName(), names))
	}
	return fmt.Errorf("%w%s\nrun \"%s --help\" for the flags and examples", err, hint, c.CommandPath())
}

// AddCheck adds a check of flags and arguments that a command makes before it runs. All mistakes are one error.
func AddCheck(c *cobra.Command, check func(c *cobra.Command, args []string) error) {
	before := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if before == nil {
			return check(c, args)
		}
		return errors.Join(before(c, args), check(c, args))
	}
}
