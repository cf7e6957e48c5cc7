"""Reference pages, generated from the types and declarations of the package.

``python -m docs.generate FOLDER`` writes the pages; ``make docs`` does so before Sphinx reads them.

``declarations``  constants and struct fields with their comments, from the source
``users``         components that read or write a constant, from the source
``structs``       the fields of a struct as table rows: path, type, default, bounds
``objects``       custom resources, annotations, labels, ConfigMap sections
``settings``      configuration files, plugins with arguments, feature gates
``commands``      commands with flags and environment variables
``deployment``    values of the chart, rights, webhooks
``metrics``       metrics by component
``states``        event reasons and conditions
``support``       tested versions
``diagrams``      images of the concepts
"""
