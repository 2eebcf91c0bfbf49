// Command load is the servers and the clients of the tests on real nodes:
//
//	load serve
//	load ask [-listen :9000] [-pause 100ms] KIND=ADDRESS ...
//
// A server answers HTTP and UDP on port 8080 and gRPC on 8081. Clients ask one
// server address each without pause; GET /counts returns their counts. Nothing is
// repeated: a request without its answer counts as failed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: load serve, or load ask KIND=ADDRESS"))
	}
	if os.Args[1] == "serve" {
		fail(serve())
		return
	}
	flags := flag.NewFlagSet("ask", flag.ExitOnError)
	listen := flags.String("listen", ":9000", "address of the counts")
	pause := flags.Duration("pause", 100*time.Millisecond, "of a client between two requests")
	fail(flags.Parse(os.Args[2:]))
	clients, err := start(flags.Args(), *pause)
	fail(err)
	http.HandleFunc("GET /counts", func(w http.ResponseWriter, r *http.Request) {
		clients.report(w, r.URL.Query().Has("begin"))
	})
	fail(http.ListenAndServe(*listen, nil))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
