package cluster

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// trimming is a serializer whose protobuf decoder skips fields that the conversion does not read. That is most of
// an object: the field managers alone are two thirds of a Service, and the images and quantities most of a Node.
type trimming struct {
	runtime.NegotiatedSerializer
	unread map[string]cuts
}

func (t trimming) SupportedMediaTypes() []runtime.SerializerInfo {
	all := slices.Clone(t.NegotiatedSerializer.SupportedMediaTypes())
	for i := range all {
		if all[i].MediaType == runtime.ContentTypeProtobuf {
			all[i].Serializer = trimmer{all[i].Serializer, t.unread}
		}
	}
	return all
}

type trimmer struct {
	runtime.Serializer
	unread map[string]cuts
}

// envelope precedes a message of the type k8s.io.apimachinery.pkg.runtime.Unknown.
const envelope = "k8s\x00"

// Decode implements [runtime.Decoder]. It changes data, which belongs to this one answer of the API server.
func (t trimmer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if message, ok := bytes.CutPrefix(data, []byte(envelope)); ok {
		// A message of the type Unknown: the type of an object, with its kind, and the encoded object.
		const typeMeta, kind, raw = 1, 2, 2
		if remove, ok := t.unread[string(findField(findField(message, typeMeta), kind))]; ok {
			data = data[:len(envelope)+len(trim(message, cuts{raw: remove}))]
		}
	}
	return t.Serializer.Decode(data, defaults, into)
}

// cuts are the fields of a message that are removed, and those within which others are.
type cuts map[protowire.Number]cuts

var (
	unreadMetadata = cuts{5: nil /* uid */, 13: nil /* ownerReferences */, 14: nil /* finalizers */, 17: nil /* managedFields */}

	// unread are the fields to remove by the kind of an object. Numbers of fields
	// never change, and fields that are not listed stay.
	unread = map[string]cuts{
		"Service": {1: unreadMetadata, 2: {2: nil /* selector */}, 3: {2: nil /* conditions */}},
		"EndpointSlice": {1: unreadMetadata, 2: {
			3: nil /* hostname */, 4: nil /* targetRef */, 5: nil /* deprecatedTopology */}},
		"Node": {1: unreadMetadata, 3: {
			1: nil /* capacity */, 2: nil /* allocatable */, 4: nil /* conditions */, 7: nil /* nodeInfo */, 8: nil, /* images */
			9: nil /* volumesInUse */, 10: nil /* volumesAttached */}},
	}

	// unreadWithSelectors is unread without the selectors of Services.
	unreadWithSelectors = map[string]cuts{
		"Service": {1: unreadMetadata, 3: {2: nil /* conditions */}}, "EndpointSlice": unread["EndpointSlice"], "Node": unread["Node"]}
)

// findField returns the first value of a field of strings, bytes or messages, or nil.
func findField(message []byte, field protowire.Number) []byte {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeField(message)
		if n < 0 {
			return nil
		}
		if number == field && kind == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(message)
			value, _ := protowire.ConsumeBytes(message[tag:])
			return value
		}
		message = message[n:]
	}
	return nil
}

// trim removes fields from a message, in place. What cannot be parsed stays: the decoder reports it.
func trim(message []byte, remove cuts) []byte {
	out := message[:0]
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeField(message)
		if size < 0 {
			return append(out, message...)
		}
		field := message[:size]
		message = message[size:]
		within, listed := remove[number]
		switch {
		case !listed || kind != protowire.BytesType:
			out = append(out, field...)
		case within != nil:
			_, _, tag := protowire.ConsumeTag(field)
			value, _ := protowire.ConsumeBytes(field[tag:])
			// The header becomes no longer than it was, so that nothing is overwritten before it is moved.
			value = trim(value, within)
			out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), value)
		}
	}
	return out
}
