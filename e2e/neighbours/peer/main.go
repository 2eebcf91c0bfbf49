// Command peer is an end of a flow in a container: "peer serve NAME PORT"
// answers every line and datagram with its name, its port and the address of the
// client; "peer ask NETWORK ADDRESS" prints such an answer. "peer proxy OUTBOUND
// INBOUND" is a sidecar that listens on two ports.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		end(fmt.Errorf("usage: peer serve NAME PORT, peer ask NETWORK ADDRESS, or peer proxy OUTBOUND INBOUND"))
	}
	switch os.Args[1] {
	case "serve":
		end(serve(os.Args[2], os.Args[3]))
	case "ask":
		end(ask(os.Args[2], os.Args[3]))
	case "proxy":
		end(proxy(os.Args[2], os.Args[3]))
	}
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func serve(name, port string) error {
	answer := func(client net.Addr) string {
		host, _, _ := net.SplitHostPort(client.String())
		return fmt.Sprintf("%s %s %s\n", name, port, host)
	}
	datagrams, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	go func() {
		for buf := make([]byte, 1500); ; {
			if _, from, err := datagrams.ReadFrom(buf); err == nil {
				_, _ = datagrams.WriteTo([]byte(answer(from)), from)
			}
		}
	}()
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			for lines := bufio.NewScanner(c); lines.Scan(); {
				if _, err := c.Write([]byte(answer(c.RemoteAddr()))); err != nil {
					return
				}
			}
		}()
	}
}

func ask(network, address string) error {
	const wait = 5 * time.Second
	c, err := net.DialTimeout(network, address, wait)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("?\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(answer)
	return err
}
