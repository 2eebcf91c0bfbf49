package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/nftproxy/nftproxy/internal/host"
)

// logStart logs what runs, on what and for what (13.24).
func (d *Daemon) logStart(owns bool) {
	var machine host.System
	args := []any{"version", d.Version, "kernel", machine.KernelRelease(), "source", d.Source.String(), "node", d.Config.Node.NodeName}
	if d.Config.File != nil {
		args = append(args, "config", d.Config.File.Path)
	}
	for _, server := range []struct{ name, address string }{{"health", d.Config.HealthAddress()}, {"metrics", d.Config.MetricsAddress()}} {
		if server.address != "" {
			args = append(args, server.name, server.address)
		}
	}
	d.Log.Info("starting", append(args, "ownsTables", owns)...)
}

// logEnd logs that the process ends as soon as ctx is cancelled, and, with the
// function returned, that it has ended. An error that ends the process is reported
// by the caller of [Daemon.Run].
func (d *Daemon) logEnd(ctx context.Context) (ended func()) {
	logged := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(logged)
		// A signal is a cause of its own; without one, the error of a part has cancelled ctx.
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) && cause != context.Canceled {
			d.Log.Info("stopping", "reason", cause.Error())
		}
	})
	return func() {
		if !stop() {
			<-logged
		}
		d.Log.Info("stopped; the rules stay in the kernel")
	}
}

// quietTime is how long a step of the start may take without a line in the log.
const quietTime = 5 * time.Second

// awaits carries out a step of the start, and logs what that waits for unless it ends soon (13.24). It
// logs again after twice the time, and so on.
func (d *Daemon) awaits(what string, step func() error) error {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for pause := quietTime; ; pause *= 2 {
			select {
			case <-ended:
				return
			case <-time.After(pause):
				d.Log.Warn("the start takes long", "waitsFor", what, "longerThan", 2*pause-quietTime)
			}
		}
	}()
	return step()
}
