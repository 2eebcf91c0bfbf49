// Command istio-iptables writes the rules that redirect a pod's connections to its
// sidecar. Istio has it as a part of its agent, which is much larger.
package main

import (
	"fmt"
	"os"

	"istio.io/istio/pkg/log"
	"istio.io/istio/tools/istio-iptables/pkg/cmd"
)

func main() {
	if err := cmd.GetCommand(log.DefaultOptions()).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
