// Package v1beta1 stands in for the package of the same path, which not every
// module proxy offers. MetalLB is compiled with its types, but uses them only in
// the mode "frr-k8s", which the tests do not run: these have just the fields
// that MetalLB sets.
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AddToScheme adds nothing: no object of these types is ever read or written.
func AddToScheme(*runtime.Scheme) error { return nil }

type (
	DynamicASNMode string

	FRRConfiguration struct {
		metav1.TypeMeta
		metav1.ObjectMeta
		Spec FRRConfigurationSpec
	}

	FRRConfigurationSpec struct {
		NodeSelector metav1.LabelSelector
		BGP          BGPConfig
	}

	BGPConfig struct {
		Routers     []Router
		BFDProfiles []BFDProfile
	}

	Router struct {
		ASN       uint32
		ID, VRF   string
		Neighbors []Neighbor
		Prefixes  []string
	}

	Neighbor struct {
		Address, Interface, BFDProfile, Password                               string
		ASN                                                                    uint32
		DynamicASN                                                             DynamicASNMode
		Port                                                                   *uint16
		HoldTime, KeepaliveTime, ConnectTime                                   *metav1.Duration
		EnableGracefulRestart, EBGPMultiHop, DualStackAddressFamily, DisableMP bool
		ToAdvertise                                                            Advertise
		PasswordSecret                                                         SecretReference
	}

	SecretReference struct{ Name, Namespace string }

	Advertise struct {
		Allowed                   AllowedOutPrefixes
		PrefixesWithLocalPref     []LocalPrefPrefixes
		PrefixesWithCommunity     []CommunityPrefixes
		PrefixesWithAsPathPrepend []AsPathPrependPrefixes
	}

	AllowedOutPrefixes struct{ Prefixes []string }

	LocalPrefPrefixes struct {
		LocalPref uint32
		Prefixes  []string
	}

	CommunityPrefixes struct {
		Community string
		Prefixes  []string
	}

	AsPathPrependPrefixes struct {
		AsPathPrepend uint8
		Prefixes      []string
	}

	BFDProfile struct {
		Name                                                                          string
		ReceiveInterval, TransmitInterval, DetectMultiplier, EchoInterval, MinimumTTL *uint32
		EchoMode, PassiveMode                                                         *bool
	}
)

// DeepCopyObject makes FRRConfiguration an object. It is never called.
func (c *FRRConfiguration) DeepCopyObject() runtime.Object { d := *c; return &d }

// DeepCopy is never called.
func (c *FRRConfiguration) DeepCopy() *FRRConfiguration { d := *c; return &d }

// DeepCopyInto is never called.
func (s *FRRConfigurationSpec) DeepCopyInto(out *FRRConfigurationSpec) { *out = *s }
