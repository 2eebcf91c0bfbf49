package testbed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// Store writes objects to etcd as the API server stores them: a hundred thousand
// within a minute, for which the API server takes an hour on two busy processors. It
// neither validates objects nor sets their defaults.
type Store struct {
	c       *Cluster
	client  http.Client
	waiting []storeRequest
}

// storeRequest is an operation of a transaction, in etcd's JSON.
type storeRequest struct {
	Put storePut `json:"requestPut"`
}

type storePut struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// transactionSize is the most operations that etcd accepts in one transaction.
const transactionSize = 128

func (c *Cluster) NewStore() *Store {
	return &Store{c: c, client: http.Client{Transport: &http.Transport{DialContext: c.Node.DialContext}}}
}

// Put writes an object, with others or when Flush is called. The path is that below
// /registry.
func (s *Store) Put(path string, object runtime.Object) {
	s.c.T.Helper()
	var value bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &value); err != nil {
		s.c.T.Fatalf("encode %s: %v", path, err)
	}
	s.waiting = append(s.waiting, storeRequest{storePut{[]byte("/registry/" + path), value.Bytes()}})
	if len(s.waiting) == transactionSize {
		s.Flush()
	}
}

// Flush writes all objects that were put.
func (s *Store) Flush() {
	s.c.T.Helper()
	body, err := json.Marshal(map[string][]storeRequest{"success": s.waiting})
	if err != nil {
		s.c.T.Fatal(err)
	}
	s.waiting = s.waiting[:0]
	r, err := s.client.Post(EtcdURL+"/v3/kv/txn", "application/json", bytes.NewReader(body))
	if err == nil {
		defer r.Body.Close()
		var answer []byte
		if answer, err = io.ReadAll(r.Body); err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", r.Status, answer)
		}
	}
	if err != nil {
		s.c.T.Fatalf("write to etcd: %v", err)
	}
}
