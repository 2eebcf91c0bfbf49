package command

import (
	"errors"
	"log/slog"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/kernel"
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
