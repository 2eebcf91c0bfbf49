package debian

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
)

// output runs a command and returns what it prints, or an error with it.
func output(cmd *exec.Cmd) (string, error) {
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out.String(), complaint.String())
	}
	return out.String(), nil
}
