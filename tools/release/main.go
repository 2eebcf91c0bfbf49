// Command release makes and publishes what registries serve of a release: an image for several
// architectures, the Helm chart that names this image by its digest, and the SLSA provenance of
// all files. The same programs and the same SOURCE_DATE_EPOCH give the same bytes.
//
//	release image VERSION DIST DIRECTORY   writes the image of DIST/nftproxy-linux-* as an OCI
//	                                       layout, and prints its digest
//	release chart VERSION DIST DIGEST      writes DIST/nftproxy-VERSION.tgz
//	release provenance DIST                prints the statement about the files of DIST/SHA256SUMS
//	release push VERSION DIST REGISTRY     pushes image and chart, and prints their references
//
// It signs nothing: scripts/publish does that with cosign. Credentials of the registry are those
// of Docker's configuration file.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// repository is the home of the source.
const repository = "https://github.com/nftproxy/nftproxy"

// publicRegistry is where releases are, and so the image that the chart names.
const publicRegistry = "ghcr.io/nftproxy"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // Helm's notes about links in the chart
	out, err := run(ctx, os.Args[1:], os.Getenv)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Println(out)
}

// run runs a command, and returns what it prints.
func run(ctx context.Context, args []string, getenv func(string) string) (string, error) {
	command := ""
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch {
	case command == "image" && len(args) == 3:
		created, err := sourceDate(getenv)
		if err != nil {
			return "", err
		}
		return writeImage(build{version: args[0], dist: args[1], created: created}, args[2])
	case command == "chart" && len(args) == 3:
		created, err := sourceDate(getenv)
		if err != nil {
			return "", err
		}
		return writeChart(build{version: args[0], dist: args[1], created: created}, args[2])
	case command == "provenance" && len(args) == 1:
		return provenance(args[0], getenv)
	case command == "push" && len(args) == 3:
		return push(ctx, args[0], args[1], args[2])
	}
	return "", errors.New("usage: release image VERSION DIST DIRECTORY | chart VERSION DIST DIGEST | provenance DIST | push VERSION DIST REGISTRY")
}

// build is what image and chart are made from.
type build struct {
	version string // v1.2.3
	dist    string // directory of the programs
	created time.Time
}

// number returns the version as charts write it.
func (b build) number() string { return strings.TrimPrefix(b.version, "v") }

func sourceDate(getenv func(string) string) (time.Time, error) {
	seconds, err := strconv.ParseInt(getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("parse SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
