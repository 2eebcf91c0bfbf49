package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// beBusy in the environment makes the program one that only uses a processor.
const beBusy = "NFTPROXY_OFTEN_BUSY"

// spin uses a processor until the process is killed.
func spin() {
	for n := 0; n >= 0; n = (n + 1) % 1000 {
	}
}

// startLoad starts busy processes with the priority of the tests. They end with this process, or by the
// function that is returned.
func startLoad(n int) (end func(), err error) {
	var running []*exec.Cmd
	end = func() {
		for _, cmd := range running {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // the error is the signal
		}
	}
	for range n {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), beBusy+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			end()
			return nil, fmt.Errorf("start a busy process: %w", err)
		}
		running = append(running, cmd)
	}
	return end, nil
}
