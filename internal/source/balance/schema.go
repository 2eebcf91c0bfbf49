package balance

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/setting"
	"github.com/nftproxy/nftproxy/internal/source/convert"
	"github.com/nftproxy/nftproxy/internal/source/healthcheck"
	"github.com/nftproxy/nftproxy/internal/words"
)

type jsonSchema = map[string]any

// Schema returns the JSON Schema (draft 7, as editors know it) of the kinds of files. Tests
// compare it with the decoder.
func Schema() []byte {
	kinds := map[string]jsonSchema{
		Kind: {
			"title": Kind, "description": "Balances connections to addresses and ports over servers: nftproxy run -f FILE",
			"required": []string{"kind", "name", "listen"}, "properties": balanceProperties(),
			"anyOf": []jsonSchema{{"required": []string{"backends"}}, {"required": []string{"backendsFrom"}}},
		},
		PoolKind: {
			"title": PoolKind, "description": "Named list of servers, for several Balances",
			"required": []string{"kind", "name", "servers"}, "properties": poolProperties(),
		},
		DefaultsKind: {
			"title": DefaultsKind, "description": "Values of fields that the Balances in the files of a directory lack",
			"required": []string{"kind"}, "properties": defaultsProperties(),
		},
	}
	var forms []jsonSchema
	for _, name := range []string{Kind, PoolKind, DefaultsKind} {
		kinds[name]["type"], kinds[name]["additionalProperties"] = "object", false
		forms = append(forms, jsonSchema{"$ref": "#/definitions/" + name})
	}
	text, _ := json.MarshalIndent(jsonSchema{ // always possible
		"$schema":     "http://json-schema.org/draft-07/schema#",
		"title":       "nftproxy",
		"oneOf":       forms,
		"definitions": kinds,
	}, "", "  ")
	return append(text, '\n')
}

func typeProperties(kind string) jsonSchema {
	return jsonSchema{
		"apiVersion": jsonSchema{"const": Version, "description": "may be left out"},
		"kind":       jsonSchema{"const": kind},
	}
}

func poolProperties() jsonSchema {
	out := typeProperties(PoolKind)
	entry := backendProperties()
	entry["required"] = []string{"address"}
	delete(entry["properties"].(jsonSchema), "servers")
	maps.Copy(out, jsonSchema{
		"name":        schemaText("name in the entries of backends of Balances", namePattern),
		"namespace":   schemaText("namespace of the Balances that use the servers; default if there is none", namePattern),
		"description": schemaText("line of text for readers of the file", ""),
		"servers":     oneOrMany("servers, as in backends of a Balance", jsonSchema{"anyOf": []jsonSchema{backendAddress(), entry}}, 0),
		"check":       asInBalance("check", "health check of the Balances that have none and that it fits; docs/health-checks.md"),
	})
	delete(out["description"].(jsonSchema), "pattern")
	return out
}

func defaultsProperties() jsonSchema {
	out := typeProperties(DefaultsKind)
	for _, name := range defaultFields {
		out[name] = asInBalance(name, "as in a Balance")
	}
	return out
}

// asInBalance is the schema of a field that a Balance has, too. Validators read nothing but the
// reference, and people the description.
func asInBalance(name, description string) jsonSchema {
	return jsonSchema{"$ref": "#/definitions/" + Kind + "/properties/" + name, "description": description}
}

const (
	addressPattern   = `(\[[0-9a-fA-F:.]+\]|[0-9.]+)`
	portPattern      = `[0-9]{1,5}(-[0-9]{1,5})?`
	protocolPattern  = `([tT][cC][pP]|[uU][dD][pP]|[sS][cC][tT][pP])`
	interfacePattern = `[A-Za-z0-9_-]{1,15}(\.[0-9]+)?`
	hostPattern      = `([A-Za-z0-9_-]+\.)*[A-Za-z0-9_-]*[A-Za-z][A-Za-z0-9_-]*\.?`
	namePattern      = `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
)

func balanceProperties() jsonSchema {
	listen := schemaText("address and port, range of ports, or all ports, like 203.0.113.10:443, [2001:db8::10]:443, 203.0.113.10:5000-5099/udp or 203.0.113.10:all; without an address, all of this machine, like :443; those of an interface, like eth0:443",
		"^("+addressPattern+"|[*]?|"+interfacePattern+"):("+portPattern+"|"+convert.AllPorts+")(/"+protocolPattern+")?$")
	protocol := schemaText("tcp, udp, sctp, or several with commas", "^ *"+protocolPattern+" *(, *"+protocolPattern+" *)*$")
	out := setting.Properties()
	maps.Copy(out, jsonSchema{
		"name":      schemaText("name in messages, status and metrics", namePattern),
		"namespace": schemaText("namespace; default if there is none", namePattern),
		"listen":    oneOrMany("addresses and ports that clients connect to; all addresses have the same ports", listen, 1),
		"protocol":  oneOrMany("protocols of the entries of listen that name none; tcp by default", protocol, 0),
		"backends":  oneOrMany("servers; each serves the addresses of its family", jsonSchema{"anyOf": []jsonSchema{backendAddress(), backendProperties()}}, 0),
		"check":     checkSchema(), // of the parser, which knows types and fields
	})
	maps.Copy(out, typeProperties(Kind))
	return out
}

func backendAddress() jsonSchema {
	return schemaText("address or name of DNS, with a port unless it is that of listen, like 10.0.0.2:8443, [fd00::2]:8443 or app.example.com:8443; a name of SRV records has none, like _https._tcp.example.com",
		"^("+addressPattern+"(:"+portPattern+")?|[0-9a-fA-F:.]+|"+hostPattern+"(:"+portPattern+")?)$")
}

func backendProperties() jsonSchema {
	return jsonSchema{
		"type": "object", "additionalProperties": false,
		"anyOf": []jsonSchema{{"required": []string{"address"}}, {"required": []string{"servers"}}},
		"properties": jsonSchema{
			"address":  backendAddress(),
			"servers":  schemaText("name of an object of kind Servers, in place of an address: all of its servers", namePattern),
			"port":     jsonSchema{"description": "port, or range of ports, in place of one in the address", "anyOf": []jsonSchema{{"type": "integer", "minimum": 1, "maximum": 65535}, schemaText("", "^"+portPattern+"$")}},
			"weight":   schemaNumber("share of new connections relative to the others; 0 takes none", 0, int(convert.Weights.Highest), 1),
			"backup":   schemaFlag("stands by while another server is usable"),
			"priority": schemaNumber("0 comes first; servers of a higher number stand by", 0, int(convert.Priorities.Highest), 0),
			"drain":    schemaFlag("takes no new connections, and keeps the established ones"),
		},
	}
}

var checkDescriptions = map[string]string{
	"tcp": "the server accepts a connection; the value is empty", "http": "path that is asked for, like /healthz, over HTTP", "https": "the same over HTTPS",
	"grpc": "service that the gRPC health protocol is asked about; empty: the server as a whole", "udp": "the server answers what is sent to it; or the value is echo: it answers the same",
	"dns": "name that the server is asked for", "passive": "what share of the last sampled connections of clients has to fail, like 5 of 10", "exec": "program and its arguments, which exits with 0 if the server is healthy",
	"interval": "time between the starts of two checks, 100ms to 1h; by default 2s. Of passive how long a server is left out at first, from 1s; by default 10s", "timeout": "time for one check as a whole, 10ms to 1m; by default 1s, or the interval if that is shorter",
	"send": "text to send (tcp, udp)", "sendHex": "the same in hexadecimal", "expect": "text that the answer has to contain within its first 64 KiB (tcp, udp)", "expectHex": "the same in hexadecimal", "expectMatches": "regular expression for the answer (tcp)",
	"method": "method of HTTP; by default GET", "host": "header Host or :authority, and the name in TLS (http, https, grpc); by default the address",
	"status": "status, range or list of these that is expected of HTTP; by default 200-399", "body": "text in the first 64 KiB of the body (http, https)", "bodyMatches": "regular expression for the same",
	"tls": "gRPC over TLS", "verify": "verify the certificate of the server (https, grpc)",
	"query": "type of the question of DNS, like AAAA; by default A for a name", "rcode": "response code of DNS that is expected, or a list; by default NOERROR and NXDOMAIN",
}

func checkSchema() jsonSchema {
	duration := schemaText("", setting.DurationPattern)
	yes, content := schemaFlag(""), jsonSchema{"type": "string", "minLength": 1}
	fields := map[string]jsonSchema{
		"port": schemaNumber("port of the servers to check; by default that of the first port", 1, 65535, nil), "rise": schemaNumber("good results until a server is used again", 1, healthcheck.MaxCount, model.DefaultCheckRise),
		"fall": schemaNumber("bad results until a server is left out", 1, healthcheck.MaxCount, model.DefaultCheckFall), "interval": duration, "timeout": duration,
		"whenAllFail": schemaWords("what happens when every server fails", model.UseAll.String(), model.RejectAll.String()),
		"send":        content, "sendHex": content, "expect": content, "expectHex": content, "expectMatches": content,
		"method": schemaWords("", "GET", "HEAD"), "status": {"type": []string{"string", "integer", "array"}}, "body": content, "bodyMatches": content,
		"host": content, "tls": yes, "verify": yes, "query": jsonSchema{"type": "string"}, "rcode": {"type": []string{"string", "array"}},
	}
	var types []jsonSchema
	for _, t := range model.CheckTypes {
		fields[t] = jsonSchema{}
		types = append(types, jsonSchema{"required": []string{t}})
	}
	for name, text := range checkDescriptions {
		fields[name] = withDescription(text, maps.Clone(fields[name]))
	}
	return jsonSchema{
		"description": words.Balance.Text(setting.Check.Meaning) + "; docs/health-checks.md",
		"anyOf": []jsonSchema{
			{"enum": append(slices.Clone(model.CheckTypes[:]), setting.None)},
			{"type": "object", "additionalProperties": false, "oneOf": types, "properties": fields},
		},
	}
}

func schemaText(description, pattern string) jsonSchema {
	return withDescription(description, jsonSchema{"type": "string", "pattern": pattern})
}

func schemaWords(description string, values ...string) jsonSchema {
	return withDescription(description, jsonSchema{"enum": values})
}

func schemaFlag(description string) jsonSchema {
	return withDescription(description, jsonSchema{"type": "boolean"})
}

func schemaNumber(description string, lowest, highest int, otherwise any) jsonSchema {
	out := jsonSchema{"type": "integer", "minimum": lowest, "maximum": highest}
	if otherwise != nil {
		out["default"] = otherwise
	}
	return withDescription(description, out)
}

func oneOrMany(description string, value jsonSchema, least int) jsonSchema {
	return withDescription(description, setting.OneOrMany(value, least))
}

func withDescription(description string, s jsonSchema) jsonSchema {
	if description != "" {
		s["description"] = description
	}
	return s
}
