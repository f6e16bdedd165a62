<?php
// A service on Symfony's components, with its front controller index.php.
require '/usr/share/php/Symfony/Component/HttpFoundation/autoload.php';
require '/usr/share/php/Symfony/Component/Routing/autoload.php';

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\Routing\Exception\ExceptionInterface;
use Symfony\Component\Routing\Matcher\UrlMatcher;
use Symfony\Component\Routing\RequestContext;
use Symfony\Component\Routing\Route;
use Symfony\Component\Routing\RouteCollection;

require dirname(realpath(__FILE__)) . '/runs.php';

$routes = new RouteCollection();
$routes->add('pay', new Route('/payments', [], [], [], '', [], ['POST', 'DELETE']));
$routes->add('take', new Route(getenv('TAKEN'), [], [], [], '', [], ['GET']));
Request::enableHttpMethodParameterOverride(); // as the framework's default was
$request = Request::createFromGlobals();
try {
    $found = (new UrlMatcher($routes, (new RequestContext())->fromRequest($request)))->match($request->getPathInfo());
} catch (ExceptionInterface $none) {
    http_response_code(404);
    return;
}
if ($found['_route'] === 'take') {
    echo json_encode(take());
    return;
}
pay($request->headers->get('Idempotency-Key', ''));
