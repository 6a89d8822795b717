"""Components that differ from others in some attributes: broken on purpose."""

import dataclasses

from specjax import components


def subclass(component_class, **attributes):
  """Returns a class of components like another one, with other attributes."""
  namespace = {'__doc__': component_class.__doc__, **attributes}
  name = component_class.__name__
  return components.component(type(name, (component_class,), namespace))


def twin(component, **attributes):
  """Returns a component like another one, with other attributes.

  Args:
    component: of any class that is decorated with `components.component`.
    **attributes: values of fields, or attributes of a subclass. A function
      replaces a method and is called without `self`.
  """
  fields = {
    field.name: getattr(component, field.name)
    for field in dataclasses.fields(component)
  }
  fields |= {name: attributes.pop(name) for name in {*attributes} & {*fields}}
  attributes = {
    name: staticmethod(value) if callable(value) else value
    for name, value in attributes.items()
  }
  return subclass(type(component), **attributes)(**fields)
