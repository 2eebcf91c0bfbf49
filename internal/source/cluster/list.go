package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/nftproxy/nftproxy/internal/budget"
)

// Reader reads the objects of one kind in all namespaces.
type Reader interface {
	// List calls each for every object, which is valid until each returns.
	List(ctx context.Context, o metav1.ListOptions, each func(runtime.Object) error) (metav1.ListMeta, error)
	Watch(context.Context, metav1.ListOptions) (apiwatch.Interface, error)
}

// resource is a Reader that decodes a list while it arrives, one object after the
// other, so that the list never exists in full.
type resource struct {
	*clients
	version schema.GroupVersion
	name    string // in URLs
	kind    string
	object  message         // of this kind, used for each object of a list
	unread  cuts            // fields that are not decoded
	decoder runtime.Decoder // of lists that are not in protobuf
}

type message interface {
	runtime.Object
	Reset()
	Unmarshal([]byte) error
}

func (r *resource) List(ctx context.Context, o metav1.ListOptions, each func(runtime.Object) error) (metav1.ListMeta, error) {
	client, err := r.ofGroup(r.version)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	body, err := client.Get().Resource(r.name).VersionedParams(&o, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return metav1.ListMeta{}, err
	}
	defer body.Close()
	in := bufio.NewReaderSize(body, 32<<10)
	list := r.decode
	if start, err := in.Peek(len(envelope)); err == nil && string(start) != envelope {
		list = r.decodeWhole
	}
	m, err := list(in, each)
	if err != nil {
		return m, fmt.Errorf("read list of %s: %w", r.name, err)
	}
	return m, nil
}

func (r *resource) Watch(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	client, err := r.ofGroup(r.version)
	if err != nil {
		return nil, err
	}
	o.Watch = true
	return client.Get().Resource(r.name).VersionedParams(&o, metav1.ParameterCodec).Watch(ctx)
}

func (r *resource) decodeWhole(in io.Reader, each func(runtime.Object) error) (m metav1.ListMeta, err error) {
	data, err := io.ReadAll(in)
	if err != nil {
		return m, err
	}
	list, err := runtime.Decode(r.decoder, data)
	if err != nil {
		return m, err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return m, err
	}
	m.ResourceVersion, m.Continue = of.GetResourceVersion(), of.GetContinue()
	return m, meta.EachListItem(list, each)
}

// decode reads a list in protobuf: a message of the type Unknown, which holds the kind of the list, and then the
// list, which holds metadata and objects. Each comes once: of a field that comes twice, protobuf takes the last
// one, when the objects of the first have been passed on.
func (r *resource) decode(in io.Reader, each func(runtime.Object) error) (m metav1.ListMeta, err error) {
	const typeMeta, raw = 1, 2
	w := &wire{r: bufio.NewReader(in)}
	if _, err := w.readBytes(int64(len(envelope))); err != nil {
		return m, err
	}
	hasKind, complete := false, false
	err = w.readMessage(math.MaxInt64, func(number protowire.Number, size int64) error {
		switch {
		case number == typeMeta && !hasKind:
			hasKind = true
			return r.checkKind(w, size)
		case number == raw && hasKind && !complete:
			complete = true
			return asTruncated(r.readItems(w, size, &m, each))
		case number <= raw:
			return errors.New("malformed protobuf: it needs one kind and then one list")
		}
		_, err := w.readBytes(size)
		return err
	})
	if err == io.EOF && complete {
		err = nil
	}
	return m, asTruncated(err)
}

func (r *resource) checkKind(w *wire, size int64) error {
	data, err := w.readBytes(size)
	if err != nil {
		return err
	}
	var list runtime.TypeMeta
	if err := list.Unmarshal(data); err != nil {
		return err
	}
	if list.Kind != r.kind+"List" {
		return fmt.Errorf("got a %s", list.Kind)
	}
	return nil
}

func (r *resource) readItems(w *wire, size int64, m *metav1.ListMeta, each func(runtime.Object) error) error {
	const metadata, items = 1, 2
	return w.readMessage(size, func(number protowire.Number, size int64) error {
		data, err := w.readBytes(size)
		switch {
		case err != nil:
			return err
		case number == metadata:
			return m.Unmarshal(data)
		case number != items:
			return nil
		}
		r.object.Reset()
		if err := r.object.Unmarshal(trim(data, r.unread)); err != nil {
			return err
		}
		return each(r.object)
	})
}

// asTruncated returns an error that is not mistaken for the end of a complete list.
func asTruncated(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

type wire struct {
	r   *bufio.Reader
	pos int64
	buf bytes.Buffer
}

func (w *wire) ReadByte() (byte, error) {
	w.pos++
	return w.r.ReadByte()
}

// readBytes returns the next bytes, which are valid until the next call. The watches of client-go
// have the same limit, and etcd a lower one.
func (w *wire) readBytes(size int64) ([]byte, error) {
	if size > budget.ObjectSize {
		return nil, fmt.Errorf("an object of %d bytes", size)
	}
	w.pos += size
	w.buf.Reset()
	_, err := io.CopyN(&w.buf, w.r, size)
	return w.buf.Bytes(), asTruncated(err)
}

// readMessage reads a message of that many bytes and calls field for each field of bytes or of a message; it must
// read it. The error is io.EOF if the input ends between two fields.
func (w *wire) readMessage(size int64, field func(number protowire.Number, size int64) error) error {
	size = min(size, math.MaxInt64-w.pos)
	for end := w.pos + size; w.pos < end; {
		tag, err := binary.ReadUvarint(w)
		if err != nil {
			return err
		}
		value, err := binary.ReadUvarint(w)
		if err != nil {
			return asTruncated(err)
		}
		switch number, kind := protowire.DecodeTag(tag); {
		case kind == protowire.BytesType && value <= uint64(end-w.pos):
			if err := field(number, int64(value)); err != nil {
				return err
			}
		case kind != protowire.VarintType:
			return errors.New("malformed protobuf")
		}
	}
	return nil
}

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
