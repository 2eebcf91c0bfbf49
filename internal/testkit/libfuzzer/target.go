package libfuzzer

import (
	"flag"
	"fmt"
	"reflect"
	"testing"
)

var targets = make(map[string]func(*testing.F))

// Register adds a target.
func Register(name string, f func(*testing.F)) { targets[name] = f }

// corpusEntry is the input that package testing exchanges with the fuzzing engine.
type corpusEntry = struct {
	Parent     string
	Path       string
	Data       []byte
	Values     []any
	Generation int
	IsSeed     bool
}

// target is a fuzz target that is ready to run.
type target struct {
	types []reflect.Type // of its arguments
	seeds [][]any        // that it adds
	call  func(corpusEntry) error
}

// open prepares a target. Package testing calls it twice: as the coordinator of workers, which
// knows types and seeds, and as a worker, which has the function to call. The second call ends
// never, because the function is only valid until then.
func open(name string) (*target, error) {
	f := targets[name]
	if f == nil {
		return nil, fmt.Errorf("no fuzz target %q is registered", name)
	}
	t := &target{}
	if err := start(name, f, engine{coordinate: func(seeds []corpusEntry, types []reflect.Type) {
		t.types = types
		for _, s := range seeds {
			t.seeds = append(t.seeds, s.Values)
		}
	}}, false); err != nil {
		return nil, err
	}
	if t.types == nil {
		return nil, fmt.Errorf("fuzz target %s does not call F.Fuzz", name)
	}
	calls, failed := make(chan func(corpusEntry) error), make(chan error)
	go func() {
		failed <- start(name, f, engine{work: func(call func(corpusEntry) error) {
			calls <- call
			select {}
		}}, true)
	}()
	select {
	case t.call = <-calls:
		return t, nil
	case err := <-failed:
		return nil, fmt.Errorf("fuzz target %s calls F.Fuzz only once: %w", name, err)
	}
}

// start runs a target with an engine, as a program of "go test -fuzz" does.
func start(name string, f func(*testing.F), e engine, worker bool) error {
	m := testing.MainStart(e, nil, nil, []testing.InternalFuzzTarget{{Name: name, Fn: f}}, nil)
	// The arguments of the program are those of libFuzzer.
	if !flag.Parsed() {
		if err := flag.CommandLine.Parse(nil); err != nil {
			return err
		}
	}
	for option, value := range map[string]string{"test.fuzz": "^" + name + "$", "test.fuzzcachedir": "unused", "test.fuzzworker": fmt.Sprint(worker)} {
		if err := flag.Set(option, value); err != nil {
			return err
		}
	}
	if code := m.Run(); code != 0 {
		return fmt.Errorf("start fuzz target %s: exit code %d", name, code)
	}
	return nil
}

// run calls the target with the arguments that are in data.
func (t *target) run(data []byte) error { return t.call(corpusEntry{Values: decode(data, t.types)}) }
