package benchmark

import "math"

// Exponent returns the exponent e of the power law y = c * x^e that fits points best, by least squares of the
// logarithms. With e = 1, y grows in proportion to x. Points without a logarithm are left out; it returns NaN for less
// than two different x.
func Exponent(x, y []float64) float64 {
	var n, meanX, meanY, covariance, variance float64
	for i := range x {
		if x[i] <= 0 || y[i] <= 0 {
			continue
		}
		n++
		dx := math.Log(x[i]) - meanX
		meanX += dx / n
		meanY += (math.Log(y[i]) - meanY) / n
		covariance += dx * (math.Log(y[i]) - meanY)
		variance += dx * (math.Log(x[i]) - meanX)
	}
	return covariance / variance
}
