package libfuzzer

import (
	"io"
	"reflect"
	"time"
)

// engine has the functions that package testing calls to fuzz. Those for ordinary tests do nothing.
type engine struct {
	coordinate func(seeds []corpusEntry, types []reflect.Type)
	work       func(call func(corpusEntry) error)
}

func (e engine) CoordinateFuzzing(_ time.Duration, _ int64, _ time.Duration, _ int64, _ int, seeds []corpusEntry, types []reflect.Type, _, _ string) error {
	e.coordinate(seeds, types)
	return nil
}

func (e engine) RunFuzzWorker(call func(corpusEntry) error) error {
	e.work(call)
	return nil
}

func (engine) MatchString(pattern, name string) (bool, error) { return pattern == "^"+name+"$", nil }

func (engine) ReadCorpus(string, []reflect.Type) ([]corpusEntry, error) { return nil, nil }

func (engine) CheckCorpus([]any, []reflect.Type) error { return nil }

func (engine) ResetCoverage() {}

func (engine) SnapshotCoverage() {}

func (engine) ImportPath() string { return "" }

func (engine) ModulePath() string { return "" }

func (engine) SetPanicOnExit0(bool) {}

func (engine) StartCPUProfile(io.Writer) error { return nil }

func (engine) StopCPUProfile() {}

func (engine) StartTestLog(io.Writer) {}

func (engine) StopTestLog() error { return nil }

func (engine) WriteProfileTo(string, io.Writer, int) error { return nil }

func (engine) InitRuntimeCoverage() (string, func(string, string) (string, error), func() float64) {
	return "", nil, nil
}
