package words

// rows are all words. A line has the ones of Kubernetes, of a Balance, and of both; an empty
// one stays as it is. Longer ones win.
var rows = [][3]string{
	{"a Service", "a Balance", "a Service or Balance"},
	{"Service", "Balance", "Service or Balance"},
	{"Services", "Balances", "Services and Balances"},
	{"Service of the API server", "Service of the API server", "Service of the API server"},
	{"service port", "port of a Balance", ""},
	{"service", "balance", "object"}, // the label of a fact
	{"SERVICE PORT", "BALANCE", "OBJECT"},
	{"SERVICE", "BALANCE", "OBJECT"},
	{"SERVICES", "BALANCES", "OBJECTS"},
	{"an endpoint", "a server", ""},
	{"endpoint", "server", ""},
	{"endpoints", "servers", ""},
	{"Endpoint", "Server", ""},
	{"Endpoints", "Servers", ""},
	{"ENDPOINT", "SERVER", ""},
	{"ENDPOINTS", "SERVERS", ""},
	{"load balancer IP", "address", ""},
	{"load balancer IPs", "addresses", ""},
	{"a ClusterIP", "an address", ""},
	{"ClusterIP", "address", ""},
	{"EndpointSlice", "list of servers", ""},
	{"EndpointSlices", "lists of servers", ""},
	{"Services and EndpointSlices", "Balances", "Services, EndpointSlices and Balances"},
	{"on other machines or in pods", "on other machines", ""},
	{"on another machine or in a pod", "on another machine", ""},
	{"pods on the bridge", "servers on the bridge", ""},
	{"clients or pods are reached by", "clients or servers are reached by", ""},
	{"the network configuration or the CNI plugin", "the network configuration", ""},
	{"load balancer addresses and external IPs", "addresses of Balances", ""},
	{"nftproxy.dev/source-ranges", "clients", ""},
	{"nftproxy.dev/denied-sources", "deny", ""},
	{"nftproxy.dev/on-failure: keep", "onFailure: keep", ""},
	{"neither a pod's nor in a source range", "in no list of clients", ""},
	{"a node", "a machine", ""},
	{"the node", "this machine", ""},
	{"the node itself", "this machine itself", ""},
	{"node", "machine", ""},
	{"nodes", "machines", ""},
}

// table has the words of a vocabulary by their first character.
type table map[byte][][2]string

var tables = [...]table{Balance: tableOf(1), Mixed: tableOf(2)}

func tableOf(column int) table {
	t := make(table)
	for _, row := range rows {
		if row[column] != "" {
			t[row[0][0]] = append(t[row[0][0]], [2]string{row[0], row[column]})
		}
	}
	return t
}
