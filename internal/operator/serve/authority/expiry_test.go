package authority_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/conclave-dev/conclave/internal/operator/serve/authority"
)

func TestExpiryFollowsRenewals(t *testing.T) {
	ca, expiry := time.Unix(1900000000, 0), &authority.Expiry{}
	expiry.Add("ca", func() time.Time { return ca })
	expiry.Add("webhook", func() time.Time { return time.Time{} })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(expiry)
	for range 2 {
		families, err := registry.Gather()
		if err != nil || len(families) != 1 || families[0].GetName() != "conclave_operator_certificate_expiry_timestamp_seconds" {
			t.Fatalf("got %v and error %v, want one metric", families, err)
		}
		got := map[string]float64{}
		for _, series := range families[0].GetMetric() {
			got[series.GetLabel()[0].GetValue()] = series.GetGauge().GetValue()
		}
		if got["ca"] != float64(ca.Unix()) || got["webhook"] != 0 || len(got) != 2 {
			t.Errorf("got %v, want %d for ca, and 0 for webhook, which can't be read", got, ca.Unix())
		}
		ca = ca.Add(time.Hour)
	}
}
