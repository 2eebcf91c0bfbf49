package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/nftproxy/nftproxy/bench/report"
	"github.com/nftproxy/nftproxy/bench/results"
)

// printRecords prints the records of one scenario for people.
func printRecords(out io.Writer, all []results.Record) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "operation\tn\tp50\tp95\tmax\tallocs\tallocated\tchanges\ttransactions\tnetlink\t")
	for _, r := range all {
		if r.Seconds == nil || r.Work == nil {
			continue
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%.0f\t%s\t%.1f\t%.1f\t%s\t\n", r.Operation, r.Seconds.N,
			report.Seconds(r.Seconds.P50), report.Seconds(r.Seconds.P95), report.Seconds(r.Seconds.Max),
			r.Work.Allocations, report.Bytes(r.Work.AllocatedBytes), r.Work.Changes, r.Work.Transactions, report.Bytes(r.Work.NetlinkBytes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range all {
		for base, ratio := range r.Ratios {
			fmt.Fprintf(out, "%s: %.2f times as long as %s\n", r.Operation, ratio.P50, base)
		}
		if m := r.Memory; m != nil && m.Started == 0 {
			fmt.Fprintf(out, "%s: %s at most\n", r.Operation, report.Bytes(float64(m.Peak)))
		} else if m != nil {
			fmt.Fprintf(out, "%s: %s resident after the start, %s at the end, %s at most; heap: %s in use, %s live, %d bytes for each Service\n",
				r.Operation, report.Bytes(float64(m.Started)), report.Bytes(float64(m.Resident)), report.Bytes(float64(m.Peak)),
				report.Bytes(float64(m.HeapInUse)), report.Bytes(float64(m.Live)), m.Live/uint64(r.Services))
		}
	}
	return nil
}
