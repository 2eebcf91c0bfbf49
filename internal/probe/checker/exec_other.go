//go:build !linux

package checker

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/nftproxy/nftproxy/internal/model"
)

// Nodes run Linux. On other systems nothing is checked: programs there only compute what failing checks of a
// node lead to.
var errLinux = fmt.Errorf("%w: %w", ErrLocal, errors.ErrUnsupported)

type execCheck struct {
	*model.Check
	Target
}

func (execCheck) run(context.Context) error { return errLinux }

func bindLowPort(string, string, syscall.RawConn) error { return errLinux }
