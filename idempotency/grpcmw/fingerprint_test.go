package grpcmw

import (
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// In a rolling deploy one server knows a field that another does not: the repeat comes to either.
func TestMessageIsTheSameWhetherTheServerKnowsItsFieldsOrNot(t *testing.T) {
	for name, message := range map[string]proto.Message{
		"fields":        &errdetails.ErrorInfo{Reason: "paid", Domain: "shop", Metadata: map[string]string{"a": "1"}},
		"inner fields":  &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "a", Description: "b"}, {Field: "c"}}},
		"another inner": &spb.Status{Code: 3, Message: "m", Details: []*anypb.Any{{TypeUrl: "t", Value: []byte("v")}}},
		"nothing":       &emptypb.Empty{},
	} {
		whole, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
		expect.NoError(t, name+": Marshal", err)
		want, err := fingerprint("/pay", message)
		expect.NoError(t, name+": fingerprint", err)
		for what, text := range map[string][]byte{
			"as it is": whole, "with its first field at the end": firstLast(t, whole),
		} {
			for server, known := range map[string]proto.Message{"knows all": message.ProtoReflect().New().Interface(), "knows none": &emptypb.Empty{}} {
				expect.NoError(t, name+": Unmarshal", proto.Unmarshal(text, known))
				got, err := fingerprint("/pay", known)
				expect.NoError(t, name+": fingerprint", err)
				if got != want {
					t.Errorf("%s %s, at a server that %s: got another fingerprint", name, what, server)
				}
			}
		}
	}
}

// firstLast moves the first field of a message behind all others.
func firstLast(t *testing.T, message []byte) []byte {
	t.Helper()
	if len(message) == 0 {
		return message
	}
	_, _, size := protowire.ConsumeField(message)
	number, _, _ := protowire.ConsumeTag(message)
	for next := message[size:]; len(next) > 0; { // one of a list stays before the others of it
		if other, _, _ := protowire.ConsumeTag(next); other == number {
			return message
		}
		_, _, n := protowire.ConsumeField(next)
		next = next[n:]
	}
	return append(append([]byte{}, message[size:]...), message[:size]...)
}

func TestAnotherMessageIsAnother(t *testing.T) {
	first, err := fingerprint("/pay", &errdetails.ErrorInfo{Reason: "a", Domain: "b"})
	expect.NoError(t, "fingerprint", err)
	for _, other := range []proto.Message{&errdetails.ErrorInfo{Reason: "b", Domain: "a"}, &errdetails.ErrorInfo{Reason: "a"}, &emptypb.Empty{}} {
		second, err := fingerprint("/pay", other)
		expect.NoError(t, "fingerprint", err)
		if second == first {
			t.Errorf("%v has the fingerprint of another message", other)
		}
	}
	if _, err := fingerprint("/pay", "text"); err == nil {
		t.Error("a text has a fingerprint, want an error")
	}
}
