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
		d.Log.Info("this node has no IPv6: serving IPv4 only")
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

func checkKernel(families []model.Family) error {
	problems, err := preflight.Check(families)
	if err != nil {
		return fmt.Errorf("ask the kernel for its features: %w", err)
	}
	var errs []error
	for _, p := range problems {
		errs = append(errs, errors.New(p.String()))
	}
	return errors.Join(errs...)
}
