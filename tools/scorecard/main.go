// Command scorecard judges the files of this repository with OpenSSF Scorecard, without the
// Internet: the checks that need no more than files. It prints a table in Markdown, and
// exits with 1 if a check has fewer points than are asked for.
//
// Usage: scorecard DIRECTORY
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ossf/scorecard/v5/checker"
	"github.com/ossf/scorecard/v5/clients"
	"github.com/ossf/scorecard/v5/clients/localdir"
	"github.com/ossf/scorecard/v5/log"
	"github.com/ossf/scorecard/v5/pkg/scorecard"
)

// want is the number of points, of 10, that each check must have.
const want = 8

// offline are the checks that files decide. The others ask the forge about its settings,
// pull requests, releases and people, or a database about vulnerabilities.
var offline = []string{
	"Binary-Artifacts", "Dangerous-Workflow", "Dependency-Update-Tool", "Fuzzing", "License",
	"Pinned-Dependencies", "SAST", "Security-Policy", "Token-Permissions",
}

func main() {
	if err := run(context.Background(), os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "scorecard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: scorecard DIRECTORY")
	}
	repository, err := localdir.MakeLocalDirRepo(args[0])
	if err != nil {
		return fmt.Errorf("open repository %s: %w", args[0], err)
	}
	result, err := scorecard.Run(ctx, repository, scorecard.WithChecks(offline),
		scorecard.WithOSSFuzzClient(noService{}), scorecard.WithLogLevel(log.WarnLevel))
	if err != nil {
		return fmt.Errorf("judge repository %s: %w", args[0], err)
	}
	return report(w, result.Checks)
}

// noService stands for OSS-Fuzz, a service that is asked whether it knows the project.
type noService struct{ clients.RepoClient }

func (noService) Search(clients.SearchRequest) (clients.SearchResponse, error) {
	return clients.SearchResponse{}, nil
}

func (noService) Close() error { return nil }

// report prints the checks by name. Its error names those with too few points, and why.
func report(w io.Writer, checks []checker.CheckResult) error {
	slices.SortFunc(checks, func(a, b checker.CheckResult) int { return strings.Compare(a.Name, b.Name) })
	fmt.Fprint(w, "| check | points | reason |\n|---|---|---|\n")
	var low []error
	for _, c := range checks {
		if c.Error != nil {
			low = append(low, fmt.Errorf("%s: %w", c.Name, c.Error))
			continue
		}
		fmt.Fprintf(w, "| %s | %d | %s |\n", c.Name, c.Score, c.Reason)
		if c.Score < want {
			low = append(low, fmt.Errorf("%s: %d of %d points\n%s", c.Name, c.Score, want, details(c)))
		}
	}
	if len(checks) != len(offline) {
		low = append(low, fmt.Errorf("%d checks, want %d", len(checks), len(offline)))
	}
	return errors.Join(low...)
}

// details returns what the check has found, by line.
func details(c checker.CheckResult) string {
	var b strings.Builder
	for _, d := range c.Details {
		m := d.Msg
		text := m.Text
		if m.Finding != nil {
			text = m.Finding.Message
			if l := m.Finding.Location; l != nil {
				text += ": " + l.Path
			}
		}
		fmt.Fprintf(&b, "  %s\n", text)
	}
	return b.String()
}
