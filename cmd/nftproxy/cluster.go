package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// clusterCommand names the program that has its commands.
func clusterCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "cluster",
		Short:              "Name the program that asks all nodes of a cluster",
		Long:               "All nodes of a cluster are asked by a program of its own, \"kubectl nftproxy\".\n\nExit code: 2.",
		Example:            "  nftproxy cluster status  # says: kubectl nftproxy status",
		Hidden:             true,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // kubectl-nftproxy has the flags
		RunE: func(_ *cobra.Command, args []string) error {
			return fmt.Errorf("all nodes of a cluster are asked by a program of its own: %s\ninstall it: docs/kubectl.md", strings.TrimSpace("kubectl nftproxy "+strings.Join(args, " ")))
		},
	}
}
