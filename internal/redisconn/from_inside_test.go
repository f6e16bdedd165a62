package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
)

// notTaken are the settings that are ours, or without an effect with ours. A setting that go-redis
// gets later fails the test until it is decided: taken, or one of these.
var notTaken = []string{
	"Protocol", "MaxRetries", "MinRetryBackoff", "MaxRetryBackoff", "ContextTimeoutEnabled", "ReadTimeout", "WriteTimeout", "PoolTimeout",
	"DialTimeout", "DialerRetries", "DialerRetryTimeout", "DialerRetryBackoff", "Limiter",
	"DisableIdentity", "DisableIndentity", "IdentitySuffix", "UnstableResp3", "PushNotificationProcessor", "MaintNotificationsConfig",
	"PipelineReadBufferSize", "PipelineWriteBufferSize", "PipelinePoolSize", "AutoPipelineOptions", "FailingTimeoutSeconds",
	"ClientSideCache", "ClientSideCacheConfig", "ClientSideCacheStrategy", "ClientSideCacheRefreshOnInvalidate",
	"ClientSideCacheCoalesceMisses", "ClientSideCacheInvalidationBatchWindow",
	"NewClient", "ClusterSlots", "ReadOnly", "RouteByLatency", "RouteByLatencyTolerance", "RouteRandomly", "DisableRoutingPolicies", "ShardPicker",
	"ReplicaOnly", "UseDisconnectedReplicas",
}

func TestSettingsOfAClientAreTakenOrOurs(t *testing.T) {
	var server redis.Options
	fill(t, &server)
	compare(t, server, *FromClient(&server, time.Second))
	var set redis.FailoverOptions
	fill(t, &set)
	compare(t, set, *FromFailover(&set, time.Second))
	var cluster redis.ClusterOptions
	fill(t, &cluster)
	compare(t, cluster, *FromCluster(&cluster, time.Second))
}

// fill gives every setting that is not in notTaken a value.
func fill(t *testing.T, options any) {
	t.Helper()
	of := reflect.ValueOf(options).Elem()
	for field, value := range of.Fields() {
		if !field.IsExported() || slices.Contains(notTaken, field.Name) {
			continue
		}
		switch value.Kind() {
		case reflect.String:
			value.SetString("a " + field.Name)
		case reflect.Int, reflect.Int64:
			value.SetInt(7)
		case reflect.Bool:
			value.SetBool(true)
		case reflect.Slice:
			value.Set(reflect.ValueOf([]string{"a", "b"}))
		default:
			given, known := others[field.Name]
			if !known {
				t.Fatalf("%T.%s: a %s of which the test has none", options, field.Name, field.Type)
			}
			value.Set(reflect.ValueOf(given))
		}
	}
}

var others = map[string]any{
	"TLSConfig":                    &tls.Config{MinVersion: tls.VersionTLS13},
	"Dialer":                       func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed },
	"OnConnect":                    func(context.Context, *redis.Conn) error { return nil },
	"CredentialsProvider":          func() (string, string) { return "", "" },
	"CredentialsProviderContext":   func(context.Context) (string, string, error) { return "", "", nil },
	"StreamingCredentialsProvider": provider{},
}

type provider struct{}

func (provider) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	return nil, nil, errors.ErrUnsupported
}

func compare(t *testing.T, theirs, ours any) {
	t.Helper()
	for field, value := range reflect.ValueOf(theirs).Fields() {
		if !field.IsExported() || slices.Contains(notTaken, field.Name) {
			continue
		}
		got, want := reflect.ValueOf(ours).FieldByIndex(field.Index), value
		same := reflect.DeepEqual(got.Interface(), want.Interface())
		if field.Type.Kind() == reflect.Func {
			same = got.Pointer() == want.Pointer()
		}
		// ours has theirs within
		if dial, is := reflect.TypeAssert[func(context.Context, string, string) (net.Conn, error)](got); is {
			_, err := dial(t.Context(), "", "")
			same = errors.Is(err, net.ErrClosed)
		}
		if !same {
			t.Errorf("%T.%s: got %v, want that of the client", theirs, field.Name, got)
		}
	}
}
