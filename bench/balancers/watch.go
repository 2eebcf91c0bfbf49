package main

import (
	"flag"
	"fmt"
	"time"
)

// watchWait is how long an attempt of a watch may take. The servers that it
// reaches are healthy.
const watchWait = time.Second

// watchCommand makes connections one after the other. It prints a line when it
// has begun, and the time in nanoseconds when a certain server has answered.
func watchCommand(args []string) error {
	flags := flag.NewFlagSet("watch", flag.ContinueOnError)
	to := flags.String("to", "", "address")
	want := flags.Int("want", -1, "number of the server to wait for; -1: any")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// The first attempt warms up, if anything is served yet.
	_, _ = ask(*to, watchWait)
	fmt.Println("begin")
	for {
		id, err := ask(*to, watchWait)
		if err == nil && (*want < 0 || id == *want) {
			fmt.Println(time.Now().UnixNano())
			return nil
		}
		if err != nil {
			time.Sleep(200 * time.Microsecond) // between two attempts
		}
	}
}
