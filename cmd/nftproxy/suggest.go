package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/internal/suggest"
)

// unknownCommand is the error for a word that is no command.
func unknownCommand(root *cobra.Command, word string) error {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q%s\nrun \"%s\" for the list", word, suggest.DidYouMean(suggest.Similar(word, names)), root.CommandPath())
}

// flagError adds the names of similar flags to the error for an unknown one.
func flagError(c *cobra.Command, err error) error {
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
