package command

import (
	"errors"
	"log/slog"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// WithKernel calls f with a connection to the kernel of this network namespace.
func WithKernel(f func(*kernel.Conn) error) (err error) {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return f(conn)
}

// WithApplier calls f with an applier for the kernel of this network namespace.
func WithApplier(log *slog.Logger, f func(*apply.Applier) error) error {
	return WithKernel(func(conn *kernel.Conn) error {
		conn.Log = log
		return f(apply.New(conn, log))
	})
}

// ReadRules returns the rules of nftproxy in the kernel of this network namespace.
func ReadRules() (rules *nft.Ruleset, err error) {
	err = WithKernel(func(conn *kernel.Conn) (err error) {
		rules, _, err = conn.Read()
		return err
	})
	return rules, err
}
