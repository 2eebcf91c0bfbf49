// Package conntest tests whether real connections through the frontends of Services go where
// explain predicts.
//
// A [Case] is a frontend and an origin, with a [Prediction], and [Case.Judge] compares what happened with
// it. A [Dial] is a case for another machine. Package dial opens connections with what Linux has, and
// [OpenAll] with what every operating system has. A [Report] has the results.
package conntest
