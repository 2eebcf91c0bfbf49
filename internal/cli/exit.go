package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

// The exit codes of commands.
const (
	CodeDone = iota
	CodeNo   // of a command with [FailWithNo] also any error, as of kube-proxy
	CodeError
	CodeUnexplained
)

// Codes says what the codes mean. docs/cli.md has it.
var Codes = [...]string{
	CodeDone:        "The command did its work.",
	CodeNo:          "It did its work, and the answer is no: `diff` found changes, `check` a problem, `status` that the node is not healthy. `run` ends with it after an error, as kube-proxy does.",
	CodeError:       "An error, also in the command line.",
	CodeUnexplained: "`diff --prove` found packets whose change the plan does not explain.",
}

// Exit is the error of a command that has done its work, and ends the program with a code.
type Exit struct {
	Code int
	Err  error // is printed; nil: the output has said everything
}

// The ends of commands whose output has said everything.
var (
	ErrNo          error = Exit{Code: CodeNo}
	ErrInvalid     error = Exit{Code: CodeError}
	ErrUnexplained error = Exit{Code: CodeUnexplained}
)

// Error implements error.
func (e Exit) Error() string {
	if e.Err == nil {
		return "the output says it"
	}
	return e.Err.Error()
}

// Unwrap returns the error that is printed.
func (e Exit) Unwrap() error { return e.Err }

// errorCode is the key of an annotation of commands.
const errorCode = "code of errors"

// FailWithNo has a command end with [CodeNo] after any error.
func FailWithNo(c *cobra.Command) {
	if c.Annotations == nil {
		c.Annotations = make(map[string]string)
	}
	c.Annotations[errorCode] = "1"
}

// CodeOf returns the exit code of a command that returned err, and the error to print; nil: none.
func CodeOf(c *cobra.Command, err error) (code int, printed error) {
	exit := Exit{}
	switch {
	case err == nil:
		return CodeDone, nil
	case errors.As(err, &exit):
		if exit.Err == nil {
			err = nil
		}
		return exit.Code, err
	case c.Annotations[errorCode] != "":
		return CodeNo, err
	}
	return CodeError, err
}
