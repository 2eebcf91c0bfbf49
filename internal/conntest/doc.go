// Package conntest tests whether real connections through the frontends of Services go where
// explain predicts.
//
// A [Case] is a frontend and an origin, with a [Prediction]. [Case.Try] opens connections by
// a [Prober], and [Case.Judge] compares what happened with the prediction. Connection
// tracking names the endpoint of a connection, so that any server can be tested. [Room] is a
// client apart from the machine, in a network namespace. A [Report] has the results.
package conntest
