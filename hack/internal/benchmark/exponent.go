package benchmark

import "math"

// Exponent returns the exponent e of the power law y = c * x^e that fits points best, by least squares of the logarithms. With e = 1,
// y grows in proportion to x. All values must be above 0; it returns NaN for less than two of x.
func Exponent(x, y []float64) float64 {
	var meanX, meanY float64
	for i := range x {
		meanX += math.Log(x[i]) / float64(len(x))
		meanY += math.Log(y[i]) / float64(len(x))
	}
	var covariance, variance float64
	for i := range x {
		dx := math.Log(x[i]) - meanX
		covariance += dx * (math.Log(y[i]) - meanY)
		variance += dx * dx
	}
	return covariance / variance
}
