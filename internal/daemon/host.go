package daemon

import (
	"errors"
	"fmt"

	"github.com/nftproxy/nftproxy/internal/host"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/preflight"
)

// prepareHost checks the kernel and sets what connection tracking needs
// (12.48, 12.49).
func (d *Daemon) prepareHost() ([]model.Family, error) {
	var machine host.System
	families, err := machine.Families()
	if err != nil {
		return nil, err
	}
	if len(families) < len(model.Families) {
		d.Log.Info("this node has no IPv6: IPv4 alone is served")
	}
	if err := checkKernel(families); err != nil {
		return nil, err
	}
	if err := machine.SetConntrack(d.Config.Conntrack(), d.Log); err != nil {
		return nil, err
	}
	if score := d.Config.Kube.OOMScoreAdj; score != nil {
		if err := machine.SetOOMScore(int(*score), d.Log); err != nil {
			d.Log.Warn("the kernel may end this process early when memory is short", "error", err)
		}
	}
	return families, nil
}

// checkKernel returns one error about everything that is missing.
func checkKernel(families []model.Family) error {
	problems, err := preflight.Check(families)
	if err != nil {
		return fmt.Errorf("ask the kernel for its features: %w", err)
	}
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = errors.New(p.String())
	}
	return errors.Join(errs...)
}
