package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// unknownCommand is the error for a word that is no command.
func unknownCommand(root *cobra.Command, word string) error {
	return fmt.Errorf("unknown command %q%s\nrun \"%s\" for the list", word, didYouMean("", similarCommands(root, word)), root.CommandPath())
}

// similarCommands returns the commands whose names resemble word or begin with it.
func similarCommands(c *cobra.Command, word string) []string {
	c.SuggestionsMinimumDistance = 2
	return c.SuggestionsFor(word)
}

// flagError adds the names of similar flags to the error for an unknown one.
func flagError(c *cobra.Command, err error) error {
	hint := ""
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		hint = didYouMean("--", similarFlags(c, unknown.GetSpecifiedName()))
	}
	return fmt.Errorf("%w%s\nrun \"%s --help\" for the flags and examples", err, hint, c.CommandPath())
}

// similarFlags measures names of flags as cobra measures those of commands.
func similarFlags(c *cobra.Command, word string) []string {
	var flags cobra.Command
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	return similarCommands(&flags, word)
}

func didYouMean(prefix string, names []string) string {
	const most = 5
	if len(names) == 0 || len(names) > most {
		return ""
	}
	return ": did you mean " + prefix + strings.Join(names, " or "+prefix) + "?"
}
