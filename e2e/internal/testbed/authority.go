package testbed

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// Authority signs the certificates of a cluster.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority makes one with a key of its own.
func NewAuthority() (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	own, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "cluster"}, key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of the authority: %w", err)
	}
	return &Authority{own, key}, nil
}

// Server returns the certificate and the key of the API server, as PEM.
func (a *Authority) Server(addresses ...net.IP) (certificate, key []byte, err error) {
	return a.issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		IPAddresses: addresses,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// Client returns the certificate and the key of a user, as PEM.
func (a *Authority) Client(user string, groups ...string) (certificate, key []byte, err error) {
	return a.issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Kubeconfig writes a file that identifies its reader as a user and a member of
// groups.
func (a *Authority) Kubeconfig(file, server, user string, groups ...string) error {
	certificate, key, err := a.Client(user, groups...)
	if err != nil {
		return err
	}
	return clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"cluster": {Server: server, CertificateAuthorityData: a.Pem()}},
		AuthInfos:      map[string]*api.AuthInfo{user: {ClientCertificateData: certificate, ClientKeyData: key}},
		Contexts:       map[string]*api.Context{"cluster": {Cluster: "cluster", AuthInfo: user}},
		CurrentContext: "cluster",
	}, file)
}

// Pem returns the certificate of the authority.
func (a *Authority) Pem() []byte {
	pem, err := cert.EncodeCertificates(a.cert)
	if err != nil {
		panic(err) // it writes to memory
	}
	return pem
}

func (a *Authority) issue(template x509.Certificate) (certificate, key []byte, err error) {
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, nil, fmt.Errorf("make serial number: %w", err)
	}
	template.NotBefore, template.NotAfter = a.cert.NotBefore, time.Now().Add(24*time.Hour)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %s: %w", template.Subject, err)
	}
	if certificate, err = cert.EncodeCertificates(&x509.Certificate{Raw: der}); err != nil {
		return nil, nil, err
	}
	key, err = keyutil.MarshalPrivateKeyToPEM(private)
	return certificate, key, err
}

func newKey() (crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}
